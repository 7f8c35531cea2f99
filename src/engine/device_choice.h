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
  // A sentence: why no GPU is used, where one was looked for and something is wrong with it. Empty
  // also where the machine simply has none.
  std::string note;
  // The same on the GPUs of all ranks of this process; 0 where they differ, because ranks must
  // compute alike.
  int compute_capability = 0;
  // GPUs that CUDA finds, from the first on, as far as they are of one compute capability.
  int num_alike = 0;
  // Memory of each GPU of a plan for GPUs that need not be there. Then `library` is null.
  std::optional<int64_t> planned_bytes{};

  bool on_gpu() const { return library != nullptr || planned_bytes.has_value(); }
};

// The i-th rank of this process runs on the i-th GPU that CUDA finds; first_gpu() says more. Throws
// Error when config.device is "cuda" but no GPU can be used, and when there are fewer GPUs than
// ranks.
DeviceChoice choose_device(const EngineConfig& config);
// The first of a node's GPUs, where `num_nodes` nodes of num_ranks GPUs each run on one machine and
// this is the `place`-th of them. Where each sees GPUs enough for all they take them one node after
// the other; else each has its own (CUDA_VISIBLE_DEVICES) and begins with the first.
int first_gpu(const DeviceChoice& choice, int num_ranks, int num_nodes, int place);
// The GPU memory that an engine may take, over all ranks, by what this process's GPUs have: those
// from `first` on.
int64_t available_gpu_memory(const DeviceChoice& choice, int first, const EngineConfig& config);
// What a rank takes on its GPU beside the plan. `gpus`: null for GPUs that need not be there.
int64_t gpu_overhead_bytes(const EngineConfig& config, const DeviceLibrary* gpus);
// For work that only GPUs can do, whatever config.device is. Throws Error, which opens with `who`
// ("--device cuda"), where there is no GPU.
DeviceChoice choose_gpus(const EngineConfig& config, std::string_view who);
// One GPU of `memory_bytes` for each rank, of a kind that supports all of quire's kernels.
DeviceChoice planned_gpus(const EngineConfig& config, int64_t memory_bytes);

}  // namespace quire
