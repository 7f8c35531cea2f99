#pragma once
// Memory of several GPUs that all of them write to (dist/one_shot_cuda.h).
//
// Only this memory is visible to the peers, not what is allocated later: freeing memory that peers
// see waits for them, and they may wait for this rank. Thread safety: abort() from any thread.
#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <vector>

#include "dist/one_shot_cuda.h"

namespace quire {

// Bytes on each rank's device: a region, and behind it 16 MiB for the rank's counter and words.
inline constexpr size_t kPeerMemoryBytes = size_t{2 * kPeerHalfBytes} + (size_t{16} << 20);

class PeerMemory {
 public:
  // Null where some of the devices cannot reach each other's memory, or there are more than
  // kMaxPeers. Throws Error when CUDA fails. For tests a device may appear twice.
  static std::unique_ptr<PeerMemory> make(std::span<const int> devices);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  PeerView view(int rank) const;
  PeerWords words(int rank) const;
  // Kernels that wait for a peer, now or later, trap.
  void abort();

 private:
  // A region, after it the rank's counter, and after that its words.
  struct Region {
    int device;
    cudaMemPool_t pool = nullptr;
    void* memory = nullptr;
  };

  explicit PeerMemory(std::span<const int> devices);
  void allocate(Region& region);
  void release();

  std::vector<Region> regions_;
  int* aborted_ = nullptr;  // pinned
};

}  // namespace quire
