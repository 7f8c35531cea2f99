#pragma once
// The command line of quire: picks the subcommand, runs it, turns errors into a message and an exit
// code.
#include <string>
#include <vector>

#include "cli/terminal/terminal.h"

namespace quire::cli {

// `arguments` without the program's name. Returns the exit code: 0, 1 for failure, 2 for wrong
// usage, 130 if interrupted.
int run(const std::vector<std::string>& arguments, Terminal& terminal);

}  // namespace quire::cli
