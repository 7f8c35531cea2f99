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

}  // namespace quire::ops::cuda
