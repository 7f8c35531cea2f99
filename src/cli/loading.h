#pragma once
// Loading a model under a progress bar.
#include "cli/terminal/terminal.h"
#include "quire/engine_config.h"
#include "quire/plan.h"

namespace quire::cli {

// The config as the engine takes it: the model's folder found, progress shown on standard error if
// that is a terminal, a warning where answers will be wrong, and what the environment says of the
// group of nodes: the secret (QUIRE_GROUP_SECRET), and where no option does how many nodes there
// are and which one this is, as mpirun tells the processes that it starts.
EngineConfig ready_to_load(EngineConfig config, const Terminal& terminal);

// Prints the plan's note on its device on standard error, if there is one.
void report_device(const MemoryPlan& plan, Terminal& terminal);

}  // namespace quire::cli
