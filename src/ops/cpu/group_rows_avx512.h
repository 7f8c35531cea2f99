#pragma once
// Rounds rows of activations to int8 in groups. Only for files compiled for AVX-512 (see
// ops/cpu/kernels.h): everything here is local to the file that includes it.
#include <immintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::avx512 {
namespace {

constexpr int kMaxGroup = 128;
// Integers that are stored together.
constexpr int kStoredIntegers = 16;

// The inputs of a group of a row as they lie, or gathered, with zeros after the row's end.
[[maybe_unused]] inline const float* take_group(const Int8Rows& rows, int row, int64_t first,
                                                float* gathered) {
  const float* in = rows.in + row * rows.stride;
  if (rows.permutation == nullptr && first + rows.group_size <= rows.k) return in + first;
  for (int i = 0; i < rows.group_size; ++i) {
    const int64_t at = first + i;
    gathered[i] = at >= rows.k ? 0.0f : in[rows.permutation != nullptr ? rows.permutation[at] : at];
  }
  return gathered;
}

// The largest magnitude's bits: a NaN counts as more than an infinity, that as more than any
// number.
[[maybe_unused]] inline unsigned largest_bits(const float* values, int count) {
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < count; i += 16) {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_loadu_si512(values + i), _mm512_set1_epi32(0x7fffffff));
    largest = _mm512_max_epu32(largest, magnitude);
  }
  return _mm512_reduce_max_epu32(largest);
}

// Kernels' pack_i8, for `places` rows: behind those that exist lie rows of zeros.
// store(bytes, data, row, i) puts the integers i to i + 15 of a row into the group's data.
template <typename Store>
void pack_groups(const Int8Rows& rows, int places, const Store& store) {
  constexpr unsigned kInfinity = 0x7f800000;
  auto* out = static_cast<char*>(rows.out);
  for (int64_t first = 0; first < rows.k; first += rows.group_size) {
    auto* starts = reinterpret_cast<int*>(out);
    auto* scales = reinterpret_cast<float*>(starts + places);
    char* const data = out + kInt8GroupHeader * places;
    for (int row = 0; row < rows.rows; ++row) {
      float gathered[kMaxGroup];
      const float* values = take_group(rows, row, first, gathered);
      const unsigned bits = largest_bits(values, rows.group_size);
      const float largest =
          _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
      const float inverse = 127.0f / largest;
      // No number divided by a subnormal one may leave the range of floats.
      const bool rounds = bits < kInfinity && inverse <= 3.4028235e38f;
      const float scale = bits >= kInfinity ? __builtin_nanf("") : rounds ? largest / 127.0f : 0.0f;
      __m512i sums = _mm512_setzero_si512();
      for (int i = 0; i < rows.group_size; i += kStoredIntegers) {
        const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(values + i), _mm512_set1_ps(inverse));
        const __m512i integers = rounds ? _mm512_cvtps_epi32(scaled) : _mm512_setzero_si512();
        sums = _mm512_add_epi32(sums, integers);
        store(_mm512_cvtepi32_epi8(integers), data, row, i);
      }
      const int sum = _mm512_reduce_add_epi32(sums);
      starts[row] = -rows.excess * sum;
      scales[row] = scale;
      scales[places + row] = scale * static_cast<float>(sum);
    }
    for (int row = rows.rows; row < places; ++row) {
      starts[row] = 0;
      scales[row] = scales[places + row] = 0.0f;
      for (int i = 0; i < rows.group_size; i += kStoredIntegers) {
        store(_mm_setzero_si128(), data, row, i);
      }
    }
    out += (kInt8GroupHeader + rows.group_size) * places;
  }
}

}  // namespace
}  // namespace quire::ops::avx512
