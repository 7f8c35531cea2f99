#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/terminal/standard_streams.h"
#include "cli/terminal/terminal.h"

int main(int argc, char** argv) {
  quire::cli::open_standard_streams();
  quire::cli::Terminal terminal = quire::cli::Terminal::of_process();
  return quire::cli::run(std::vector<std::string>(argv + 1, argv + argc), terminal);
}
