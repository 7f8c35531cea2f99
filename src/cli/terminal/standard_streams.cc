#include "cli/terminal/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

namespace quire::cli {

void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest number that is free is this one. Without /dev/null there is nothing better to do.
    if (open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

}  // namespace quire::cli
