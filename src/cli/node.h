#pragma once
// The part of a command that another node than node 0 does: it runs its ranks.
#include "cli/terminal/terminal.h"
#include "quire/engine_config.h"

namespace quire::cli {

// Until node 0 ends the group; SIGTERM and Ctrl-C end the whole group. Returns the exit code.
// Throws Error when the group fails.
int run_node(const EngineConfig& config, Terminal& terminal);

}  // namespace quire::cli
