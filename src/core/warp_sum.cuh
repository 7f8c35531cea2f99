#pragma once
#include <cuda_runtime_api.h>

namespace quire {

// The sum over the warp's 32 lanes, in every lane: pairs 16 lanes apart first, neighbours last. All
// lanes call it.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

}  // namespace quire
