#pragma once
// Loading a model under a progress bar.
#include "cli/terminal.h"
#include "quire/engine_config.h"
#include "quire/plan.h"

namespace quire::cli {

// The config as the engine takes it: the model's folder found, progress shown on standard error if
// that is a terminal.
EngineConfig ready_to_load(EngineConfig config, const Terminal& terminal);

// Says on standard error why an engine runs on the CPU, where something is wrong with a GPU.
void report_device(const MemoryPlan& plan, Terminal& terminal);

}  // namespace quire::cli
