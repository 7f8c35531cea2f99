#include <string>
#include <vector>

#include "cli/app.h"
#include "cli/terminal/terminal.h"

int main(int argc, char** argv) {
  quire::cli::Terminal terminal = quire::cli::Terminal::of_process();
  return quire::cli::run(std::vector<std::string>(argv + 1, argv + argc), terminal);
}
