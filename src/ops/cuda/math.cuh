#pragma once
// Arithmetic that several kernels have in common.
//
// Thread safety: pure functions.

namespace quire::ops::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x by the hardware; 0 for minus infinity. Denormal numbers are zeros.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// With the hardware's exponential, exact enough for results of 16 bits.
__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

}  // namespace quire::ops::cuda
