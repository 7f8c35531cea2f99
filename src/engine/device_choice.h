#pragma once
// Where an engine runs: on the CPU, or on which GPUs.
//
// Thread safety: free functions of their arguments and of the machine.
#include <memory>
#include <string>
#include <string_view>

#include "core/device_library.h"
#include "quire/engine_config.h"

namespace quire {

struct DeviceChoice {
  std::shared_ptr<DeviceLibrary> library;  // null: on the CPU
  std::string name;                        // "NVIDIA H200", "4 x NVIDIA H200"; empty on the CPU
  // Why not on a GPU, a sentence, where one was looked for and something is wrong with it; empty
  // also where there simply is none.
  std::string note;
  // Of all GPUs of the ranks; 0 where they differ, as ranks compute alike.
  int compute_capability = 0;
};

// Rank i runs on the i-th GPU that CUDA finds. Throws Error when config.device is "cuda" and cannot
// be, and when there are fewer GPUs than ranks.
DeviceChoice choose_device(const EngineConfig& config);
// The same for what works only on GPUs, whatever config.device is. Throws Error, which opens with
// `who` ("--device cuda"), where there is none.
DeviceChoice choose_gpus(const EngineConfig& config, std::string_view who);

}  // namespace quire
