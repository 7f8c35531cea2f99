#pragma once
// A command's work on nodes other than node 0: running the node's ranks.
#include "cli/terminal/terminal.h"
#include "quire/engine_config.h"

namespace quire::cli {

// Runs until node 0 ends the group; SIGTERM and Ctrl-C end the whole group. Returns the exit code.
// Throws Error when the group fails.
int run_node(const EngineConfig& config, Terminal& terminal);

}  // namespace quire::cli
