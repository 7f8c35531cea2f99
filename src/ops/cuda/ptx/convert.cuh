#pragma once
// Conversions to the operands of matrix products: two 16-bit elements in a register, the first in
// the lower half.
//
// PTX ISA: "Data Movement and Conversion Instructions", cvt.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace quire::ops::cuda {

template <typename T>
__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Four float8 e4m3 as float16, which holds all of their values.
__device__ __forceinline__ uint2 halves_of_e4m3(uint32_t four) {
  uint2 halves;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(four));
#else
  // Exponent and mantissa, put where float16 has its own, are the value divided by 2^8; for
  // subnormal numbers too.
  const auto scaled = [](uint32_t spread) {
    const uint32_t bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
    uint32_t pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits), "r"(0x5c005c00u));
    return pair;
  };
  halves.x = scaled(__byte_perm(four, 0, 0x1404));
  halves.y = scaled(__byte_perm(four, 0, 0x3424));
#endif
  return halves;
}

// Four float8 e5m2 as float16, whose upper bytes they are.
__device__ __forceinline__ uint2 halves_of_e5m2(uint32_t four) {
  return make_uint2(__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424));
}

// Four float8 e4m3, their exponents and mantissas put where T has its own: divided by 2^120 in
// bfloat16 and by 2^8 in float16, subnormal numbers too. NaN becomes 480.
template <typename T>
__device__ __forceinline__ uint2 spread_e4m3(uint32_t four) {
  constexpr bool kIsBFloat16 = std::is_same_v<T, __nv_bfloat16>;
  constexpr int kShift = kIsBFloat16 ? 4 : 7;
  constexpr uint32_t kBits = kIsBFloat16 ? 0x87f087f0 : 0xbf80bf80;
  uint32_t low;  // two bytes, each below eight copies of its sign
  uint32_t high;
  asm("prmt.b32 %0, %1, 0, 0x9180;" : "=r"(low) : "r"(four));
  asm("prmt.b32 %0, %1, 0, 0xb3a2;" : "=r"(high) : "r"(four));
  return make_uint2((low << kShift) & kBits, (high << kShift) & kBits);
}

// Two bfloat16 times two, rounded to nearest even. 9.0.
__device__ __forceinline__ uint32_t multiply_bfloat16(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace quire::ops::cuda
