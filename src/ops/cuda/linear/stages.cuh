#pragma once
// Going through the stages of a ring in shared memory. Device code.
#include <cstdint>

#include "ops/cuda/ptx/barriers.cuh"

namespace quire::ops::cuda {

// barrier_wait() with a loop that the compiler sees, so that it does not unroll those around.
__device__ __forceinline__ void wait_for_stage(uint32_t barrier, uint32_t parity) {
  while (!barrier_try_wait(barrier, parity)) {
  }
}

// A stage and the parity of its barriers' phase.
struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance(int num_stages) {
    if (++stage != num_stages) return;
    stage = 0;
    parity ^= 1;
  }
};

}  // namespace quire::ops::cuda
