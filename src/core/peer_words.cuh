#pragma once
// What kernels that wait for words of other ranks share.
#include <cuda_runtime_api.h>

namespace quire {

// Called in each round of a wait, counted from 0: traps when a rank has failed.
__device__ inline void trap_if_aborted(const int* aborted, unsigned round) {
  constexpr unsigned kRoundsPerLook = 4096;  // a look takes a trip over PCIe, a round under 1 us
  if (round % kRoundsPerLook != kRoundsPerLook - 1) return;
  int value;
  asm volatile("ld.relaxed.sys.global.s32 %0, [%1];" : "=r"(value) : "l"(aborted) : "memory");
  if (value != 0) __trap();
}

}  // namespace quire
