#pragma once
// Which GPUs belong to a group of ranks of this process.
//
// A group's kernels wait on their GPUs for the kernels of the other ranks. If two groups shared
// GPUs, each could fill a GPU with waiting blocks and keep out the kernel that the other group
// waits for, for ever.
//
// Thread safety: free.
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

namespace quire {

// The GPUs are claimed until the last copy is gone.
using GpuClaim = std::shared_ptr<const std::set<int>>;

class GpuClaims {
 public:
  // Throws Error where somebody still holds a claim on one of these GPUs. `gpus` may name a GPU
  // twice.
  GpuClaim claim(std::span<const int> gpus);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<const std::set<int>>> claims_;
};

}  // namespace quire
