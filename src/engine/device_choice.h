#pragma once
// Where an engine runs: on the CPU, or on which GPUs.
//
// Thread safety: free functions of their arguments and of the machine.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/device_library.h"
#include "quire/engine_config.h"

namespace quire {

struct DeviceChoice {
  std::shared_ptr<DeviceLibrary> library;  // null: on the CPU, or planned
  std::string name;                        // "NVIDIA H200", "4 x NVIDIA H200"; empty on the CPU
  // Why not on a GPU, a sentence, where one was looked for and something is wrong with it; empty
  // also where there simply is none.
  std::string note;
  // Of all GPUs of the ranks; 0 where they differ, as ranks compute alike.
  int compute_capability = 0;
  // Of each GPU that is planned for and need not be there; then there is no library.
  std::optional<int64_t> planned_bytes{};

  bool on_gpu() const { return library != nullptr || planned_bytes.has_value(); }
};

// Rank i runs on the i-th GPU that CUDA finds. Throws Error when config.device is "cuda" and cannot
// be, and when there are fewer GPUs than ranks.
DeviceChoice choose_device(const EngineConfig& config);
// The same for what works only on GPUs, whatever config.device is. Throws Error, which opens with
// `who` ("--device cuda"), where there is none.
DeviceChoice choose_gpus(const EngineConfig& config, std::string_view who);
// GPUs of `memory_bytes` each, as many as there are ranks, that take all that quire's kernels do.
DeviceChoice planned_gpus(const EngineConfig& config, int64_t memory_bytes);

}  // namespace quire
