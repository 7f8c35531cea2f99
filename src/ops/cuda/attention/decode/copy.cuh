#pragma once
// Barriers in shared memory as objects, and a warp's copies that arrive at them: by the copy engine
// of compute capability 9.0, or by the warp's lanes before it.
#include <cstdint>

#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"
#include "ops/cuda/ptx/tma.cuh"

namespace quire::ops::cuda {

// See ops/cuda/ptx/barriers.cuh for phases and their parities.
class SharedBarrier {
 public:
  __device__ void init(int arrivals) { barrier_init(address(), static_cast<uint32_t>(arrivals)); }
  __device__ void arrive() { barrier_arrive(address()); }
  __device__ void wait(uint32_t parity) { barrier_wait(address(), parity); }
  __device__ uint32_t address() const { return shared_address(&state_); }

 private:
  uint64_t state_;
};

// Ends this thread's reads of what copies overwrite once it has arrived. The arrival alone does
// not: it overtakes reads that wait in their queue, by longer than a copy takes where banks
// conflict.
__device__ __forceinline__ void finish_reads() {
  fence_async_proxy();
}

// Arrivals that end a phase of a barrier that warp_copy() reports to.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr int kCopyArrivals = 1;
#else
inline constexpr int kCopyArrivals = 32;
#endif

// A warp queues two copies of `bytes` each, a multiple of 16, which end a phase of the barrier.
__device__ __forceinline__ void warp_copy(char* to0, const char* from0, char* to1,
                                          const char* from1, int bytes, SharedBarrier& barrier,
                                          int lane) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (lane != 0) return;
  const auto size = static_cast<uint32_t>(bytes);
  barrier_arrive_expecting(barrier.address(), 2 * size);
  copy_bulk(shared_address(to0), from0, size, barrier.address());
  copy_bulk(shared_address(to1), from1, size, barrier.address());
#else
  for (int i = lane * 16; i < bytes; i += 32 * 16) {
    copy_async(shared_address(to0 + i), from0 + i, true);
    copy_async(shared_address(to1 + i), from1 + i, true);
  }
  arrive_after_copies(barrier.address());
#endif
}

}  // namespace quire::ops::cuda
