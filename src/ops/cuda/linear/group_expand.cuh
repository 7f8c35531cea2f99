#pragma once
// Integers of a block of ops/group_tiles.h as elements of 16 bits. Device code.
//
// A byte or half of one becomes a number of the type by its bits alone: the type's numbers from 128
// (bfloat16) or 1024 (float16) on are as far apart as their last bits say, so that the integer is
// in those bits, and the difference is exact.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace quire::ops::cuda {

template <typename T>
inline constexpr bool kIsBFloat16 = std::is_same_v<T, __nv_bfloat16>;

// Two elements of T in a word.
template <typename T>
using ElementPair = std::conditional_t<kIsBFloat16<T>, __nv_bfloat162, __half2>;

template <typename T>
__device__ __forceinline__ ElementPair<T> pair_of_bits(uint32_t bits) {
  ElementPair<T> pair;
  static_assert(sizeof(pair) == sizeof(bits));
  memcpy(&pair, &bits, sizeof(bits));
  return pair;
}
template <typename T>
__device__ __forceinline__ uint32_t bits_of_pair(ElementPair<T> pair) {
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// (word & mask) | bits.
template <uint32_t kMask, uint32_t kBits>
__device__ __forceinline__ uint32_t masked(uint32_t word) {
  uint32_t result;
  constexpr int kAndOr = (0xf0 & 0xcc) | 0xaa;
  asm("lop3.b32 %0, %1, %2, %3, %4;"
      : "=r"(result)
      : "r"(word), "n"(kMask), "n"(kBits), "n"(kAndOr));
  return result;
}

// 1 in both halves times the bits of an element.
constexpr uint32_t both(uint32_t bits) {
  return bits << 16 | bits;
}

// The integers in bits 0 to 3 and 16 to 19.
template <typename T>
__device__ __forceinline__ ElementPair<T> expand_int4(uint32_t word) {
  constexpr uint32_t kFirst = kIsBFloat16<T> ? 0x4300 : 0x6400;  // 128 or 1024
  constexpr uint32_t kZero = kIsBFloat16<T> ? 0x4308 : 0x6408;   // and 8 more
  return __hsub2(pair_of_bits<T>(masked<0x000f000f, both(kFirst)>(word)),
                 pair_of_bits<T>(both(kZero)));
}

// Those in bits 0 to 7 and 16 to 23. bfloat16 takes them in halves: 128 + low, and 2048 + 16 *
// high.
template <typename T>
__device__ __forceinline__ ElementPair<T> expand_int8(uint32_t word) {
  if constexpr (kIsBFloat16<T>) {
    constexpr uint32_t kHighZero = 0x4510;  // 2304: 2048 + 128, and 128 for the low half
    const auto low = pair_of_bits<T>(masked<0x000f000f, both(0x4300)>(word));
    const auto high = pair_of_bits<T>(masked<0x000f000f, both(0x4500)>(word >> 4));
    return __hadd2(__hsub2(high, pair_of_bits<T>(both(kHighZero))), low);
  } else {
    return __hsub2(pair_of_bits<T>(masked<0x00ff00ff, both(0x6400)>(word)),
                   pair_of_bits<T>(both(0x6480)));  // 1024 + 128
  }
}

// The first operand of a tensor core's product, of one step of 16 inputs: outputs `row` and `row` +
// 8 of 16.
struct StepOperand {
  uint32_t a[4];
};

// Four steps, of int4: half of a block's inputs.
template <typename T>
__device__ __forceinline__ void expand_four_bits(const uint4& words, StepOperand (&steps)[4]) {
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const uint32_t low = step < 2 ? words.x : words.z;
    const uint32_t high = step < 2 ? words.y : words.w;
    const int bit = step % 2 * 8;
    steps[step].a[0] = bits_of_pair<T>(expand_int4<T>(low >> bit));
    steps[step].a[1] = bits_of_pair<T>(expand_int4<T>(high >> bit));
    steps[step].a[2] = bits_of_pair<T>(expand_int4<T>(low >> (bit + 4)));
    steps[step].a[3] = bits_of_pair<T>(expand_int4<T>(high >> (bit + 4)));
  }
}

// Two steps, of int8.
template <typename T>
__device__ __forceinline__ void expand_eight_bits(const uint4& words, StepOperand* steps) {
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    const uint32_t low = step == 0 ? words.x : words.z;
    const uint32_t high = step == 0 ? words.y : words.w;
    steps[step].a[0] = bits_of_pair<T>(expand_int8<T>(low));
    steps[step].a[1] = bits_of_pair<T>(expand_int8<T>(high));
    steps[step].a[2] = bits_of_pair<T>(expand_int8<T>(low >> 8));
    steps[step].a[3] = bits_of_pair<T>(expand_int8<T>(high >> 8));
  }
}

}  // namespace quire::ops::cuda
