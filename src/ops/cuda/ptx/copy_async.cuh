#pragma once
// Copies from device memory to shared memory that a thread starts and does not wait for, from
// compute capability 8.0 on.
//
// PTX ISA: "Data Movement and Conversion Instructions: Non-bulk copy", and
// cp.async.mbarrier.arrive.
#include <cstdint>

namespace quire::ops::cuda {

// Copies 16 bytes, or writes zeros where `present` is false; `from` must be a valid address in any
// case.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
// Copies 8 bytes.
__device__ __forceinline__ void copy_word_async(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

// Ends a group of this thread's copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Waits for all of this thread's copies, whether in groups or not.
__device__ __forceinline__ void wait_for_all_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Arrives at a barrier (barriers.cuh) when this thread's copies so far are done. The barrier's
// count includes this arrival.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace quire::ops::cuda
