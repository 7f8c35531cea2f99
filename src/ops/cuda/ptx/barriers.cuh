#pragma once
// Barriers in shared memory (mbarrier, 8 bytes at a 32-bit address), the hardware's named barriers,
// and the fences that go with them.
//
// A barrier in shared memory goes from phase to phase. A phase ends after the barrier's number of
// arrivals and after all bytes that were announced for it. Phases have parities 0, 1, 0, ...;
// waiting for parity 1 of a fresh barrier returns at once.
//
// From compute capability 8.0 on, except where a function says 9.0.
//
// PTX ISA: "Parallel Synchronization and Communication Instructions": mbarrier, bar, fence.
#include <cstdint>

namespace quire::ops::cuda {

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes barriers that this thread has initialised visible to the copy engine and the cluster; a
// __syncthreads() follows. Before 9.0 there is neither.
__device__ __forceinline__ void fence_barrier_init() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

// Orders this thread's own reads and writes of shared memory before what the copy engine and the
// matrix units do after the next barrier. Before 9.0 there is nothing to order.
__device__ __forceinline__ void fence_async_proxy() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// The same for all of this thread's memory, not just shared memory. 9.0.
__device__ __forceinline__ void fence_async_proxy_everywhere() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier)
               : "memory");
}
// 9.0.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// Arrives, and lets the phase wait for `bytes` of copies besides. 9.0.
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(
          barrier),
      "r"(bytes)
      : "memory");
}

// Whether the phase of this parity is over. On 9.0 it waits for a while first.
__device__ __forceinline__ bool barrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t over;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred over;\n"
      "mbarrier.try_wait.parity.shared.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
#else
  asm volatile(
      "{\n.reg .pred over;\n"
      "mbarrier.test_wait.parity.shared.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
#endif
  return over != 0;
}

// Waits for the end of the phase of this parity. On 9.0 the compiler sees no loop here, so it may
// unroll the loops around.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred over;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared.b64 over, [%0], %1;\n"
      "@!over bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#else
  while (!barrier_try_wait(barrier, parity)) {
  }
#endif
}

// Named barriers 1 to 15 (0 is __syncthreads()): `threads` is the sum of those that wait and those
// that only arrive.
__device__ __forceinline__ void named_barrier_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

}  // namespace quire::ops::cuda
