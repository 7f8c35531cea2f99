#pragma once
// Loading a model under a progress bar.
#include "cli/terminal/terminal.h"
#include "quire/engine_config.h"
#include "quire/plan.h"

namespace quire::cli {

// Completes the config for the engine: finds the model's folder, shows progress on standard error
// if that is a terminal, and reads the environment for a group of nodes: the secret
// (QUIRE_GROUP_SECRET) and, without options, the number of nodes and which one this is, as mpirun
// sets them for the processes that it starts.
EngineConfig ready_to_load(EngineConfig config, const Terminal& terminal);

// Prints the plan's note on its device on standard error, if there is one.
void report_device(const MemoryPlan& plan, Terminal& terminal);

}  // namespace quire::cli
