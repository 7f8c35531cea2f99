#pragma once
// Barriers in shared memory, and copies that report to them: by Hopper's copy engine, or by the
// lanes of a warp before it.
//
// A barrier goes from phase to phase, each after as many arrivals as it was made for. The first
// phase's parity is 0; waiting for parity 1 of a fresh barrier returns at once.
#include <cstdint>

#include "ops/cuda/ptx/sm90.cuh"
#include "ops/cuda/ptx/sm80.cuh"

namespace quire::ops::cuda {

class SharedBarrier {
 public:
  __device__ void init(int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ void arrive() {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(address())
                 : "memory");
  }
  __device__ bool is_over(uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred done;\n"
        "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }
  __device__ void wait(uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n}" ::"r"(address()),
        "r"(parity)
        : "memory");
#else
    while (!is_over(parity)) {
    }
#endif
  }
  __device__ uint32_t address() const {
    return to_shared(&state_);
  }

 private:
  uint64_t state_;
};

// Makes barriers that this thread has initialised known to the copy engine.
__device__ __forceinline__ void publish_barriers() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Ends this thread's reads of what copies overwrite once it has arrived. The arrival alone does
// not: it overtakes reads that wait in their queue, by longer than a copy takes where banks
// conflict.
__device__ __forceinline__ void finish_reads() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  hopper::fence_async_proxy();
#endif
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
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(
          barrier.address()),
      "r"(2 * bytes)
      : "memory");
  const auto copy = [&](char* to, const char* from) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(to_shared(to)),
        "l"(from), "r"(bytes), "r"(barrier.address())
        : "memory");
  };
  copy(to0, from0);
  copy(to1, from1);
#else
  for (int i = lane * 16; i < bytes; i += 32 * 16) {
    copy_async(to_shared(to0 + i), from0 + i, true);
    copy_async(to_shared(to1 + i), from1 + i, true);
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier.address())
               : "memory");
#endif
}

}  // namespace quire::ops::cuda
