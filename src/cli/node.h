#pragma once
// A command's work on nodes other than node 0: running the node's ranks.
#include "cli/terminal/terminal.h"
#include "quire/engine_config.h"

namespace quire::cli {

// Runs until node 0 ends the group. SIGTERM and Ctrl-C ask node 0 to end it, which takes at most
// shutdown_timeout_s (0: node 0 ends at once) and a few seconds if it goes well; a second signal
// ends this process at once, and so the group. Returns the exit code. Throws Error when the group
// fails.
int run_node(const EngineConfig& config, double shutdown_timeout_s, Terminal& terminal);

}  // namespace quire::cli
