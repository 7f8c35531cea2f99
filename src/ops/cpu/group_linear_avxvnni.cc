// Products with integer weights by AVX-VNNI, of 8 lanes in a register. vpdpbusd multiplies bytes by
// int8 and adds four products to each lane, exactly, as group_linear_avx2.cc does in three
// instructions or more; so sums of a group, and all bits, are the same.
#include <immintrin.h>

#include "ops/cpu/group_lanes_avx2.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avxvnni {
namespace {

using avx2::kStepBytes;
using avx2::load;

// sum += the four products of each lane. Around the intrinsic GCC 12 copies every sum, and so
// spills them.
[[gnu::always_inline]] inline void dot(__m256i& sum, __m256i bytes, __m256i inputs) {
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(bytes), "x"(inputs));
}

// Adds the products of one step's bytes.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void multiply_add(const int* inputs, const __m256i (&bytes)[kColumns],
                                                __m256i (&products)[kRows][kColumns]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    const __m256i x = _mm256_set1_epi32(inputs[row]);
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      dot(products[row][column], bytes[column], x);
    }
  }
}

// Products of a group of bytes, or of half bytes, which are read again for their high halves: both
// halves would not fit the registers.
template <bool kOfHalves>
struct Products {
  static constexpr bool kHalves = kOfHalves;
  static constexpr bool kFromStarts = true;
  // A row reads the weights in a wide stream; 6 rows have 12 sums, 2 weights and an input in the 16
  // registers.
  static constexpr int columns(int rows) { return rows == 1 ? 4 : 2; }

  template <int kRows>
  [[gnu::always_inline]] static void multiply_group(const char* data, const int* inputs,
                                                    int group_size,
                                                    __m256i (&products)[kRows][columns(kRows)]) {
    constexpr int kColumns = columns(kRows);
    const __m256i low_half = _mm256_set1_epi8(15);
    for (int i = 0; i < group_size; i += kHalves ? 8 : 4, data += kStepBytes) {
      __m256i bytes[kColumns];
#pragma GCC unroll 8
      for (int column = 0; column < kColumns; ++column) {
        bytes[column] = load(data + column * 32);
        if (kHalves) bytes[column] = _mm256_and_si256(bytes[column], low_half);
      }
      multiply_add(inputs, bytes, products);
      inputs += kRows;
      if constexpr (kHalves) {
#pragma GCC unroll 8
        for (int column = 0; column < kColumns; ++column) {
          bytes[column] =
              _mm256_and_si256(_mm256_srli_epi16(load(data + column * 32), 4), low_half);
        }
        multiply_add(inputs, bytes, products);
        inputs += kRows;
      }
    }
  }
};

}  // namespace

void linear_i8(const GroupTile& tile) {
  avx2::multiply_rows<Products<false>>(tile);
}
void linear_i4(const GroupTile& tile) {
  avx2::multiply_rows<Products<true>>(tile);
}
// The bytes are multiplied as int8's are; what they are more than the integers is in the packed
// activations.
void linear_unpacked_i4(const GroupTile& tile) {
  linear_i8(tile);
}

}  // namespace quire::ops::avxvnni
