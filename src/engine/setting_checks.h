#pragma once
// Whether an engine's settings make sense, before anything is read or started.
//
// Each check throws Error that names the setting, its value and what is expected. Thread safety:
// free functions of their arguments.
#include <string>

#include "quire/engine_config.h"

namespace quire {

// Throws Error with the message unless `ok`.
void require(bool ok, const std::string& message);

// The ranks of the whole model, over all processes.
int num_ranks(const EngineConfig& config);
// Those of this process. Requires check_cluster().
int num_ranks_here(const EngineConfig& config);

void check_settings(const EngineConfig& config);
void check_speculation(const EngineConfig& config);
// Fills in max_cpu_loras.
void check_lora(EngineConfig& config);

}  // namespace quire
