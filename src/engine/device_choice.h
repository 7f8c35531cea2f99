#pragma once
// Where an engine runs: on the CPU, or on which GPUs.
//
// Thread safety: a free function of its argument and of the machine.
#include <memory>
#include <string>

#include "core/device_library.h"
#include "quire/engine_config.h"

namespace quire {

struct DeviceChoice {
  std::shared_ptr<DeviceLibrary> library;  // null: on the CPU
  std::string name;                        // "NVIDIA H200", "4 x NVIDIA H200"; empty on the CPU
  // Why not on a GPU, a sentence, where one was looked for and something is wrong with it; empty
  // also where there simply is none.
  std::string note;
};

// Rank i runs on the i-th GPU that CUDA finds. Throws Error when config.device is "cuda" and cannot
// be, and when there are fewer GPUs than ranks.
DeviceChoice choose_device(const EngineConfig& config);

}  // namespace quire
