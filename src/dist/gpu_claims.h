#pragma once
// Which GPUs belong to a group of ranks of this process.
//
// Kernels of a group wait on their GPUs for those of the other ranks. Where two groups had GPUs in
// common, the blocks of the one could keep out those that the other waits for, each on another GPU,
// for ever.
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
  // Throws Error where another claim that is still held has one of the GPUs. One may be named
  // twice.
  GpuClaim claim(std::span<const int> gpus);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<const std::set<int>>> claims_;
};

}  // namespace quire
