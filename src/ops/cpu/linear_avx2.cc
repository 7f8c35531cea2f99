// A panel's 64 lanes are four groups of two registers: 6 rows x 2 sums, 2 weights and a broadcast
// input are 15 of AVX2's 16 registers. Each sum is one chain over the steps, so a row's sums do not
// depend on the rows beside it. What takes the sums is always inlined and unrolled, or they would
// lie in memory: GCC leaves some loops as they are, and sanitizers' checks make functions too long.
#include <immintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kGroupLanes = 16;

// The two values of a step of bfloat16 weights, for 8 lanes.
__m256 first_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
__m256 second_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

template <int kRows>
[[gnu::always_inline]] inline void store_sums(const LinearTile& tile, int lane,
                                              const __m256 (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    float values[kGroupLanes];
    _mm256_storeu_ps(values, sums[row][0]);
    _mm256_storeu_ps(values + 8, sums[row][1]);
    float* out = tile.out + row * tile.out_stride + lane;
    for (int i = 0; i < kGroupLanes && lane + i < tile.cols; ++i) {
      out[i] = tile.bias != nullptr ? values[i] + tile.bias[lane + i] : values[i];
    }
  }
}

template <int kRows>
[[gnu::always_inline]] inline void load_sums(const LinearTile& tile, int lane,
                                             __m256 (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    float values[kGroupLanes] = {};
    const float* out = tile.out + row * tile.out_stride + lane;
    for (int i = 0; tile.accumulate && i < kGroupLanes && lane + i < tile.cols; ++i)
      values[i] = out[i];
    sums[row][0] = _mm256_loadu_ps(values);
    sums[row][1] = _mm256_loadu_ps(values + 8);
  }
}

template <int kRows>
[[gnu::always_inline]] inline void multiply_add(const float* inputs, __m256 w0, __m256 w1,
                                                __m256 (&sums)[kRows][2]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    const __m256 x = _mm256_broadcast_ss(inputs + row);
    sums[row][0] = _mm256_fmadd_ps(x, w0, sums[row][0]);
    sums[row][1] = _mm256_fmadd_ps(x, w1, sums[row][1]);
  }
}

template <int kRows, bool kBf16>
void multiply(const LinearTile& tile) {
  const auto* inputs_begin = static_cast<const float*>(tile.activations);
  for (int lane = 0; lane < tile.cols; lane += kGroupLanes) {
    __m256 sums[kRows][2];
    load_sums<kRows>(tile, lane, sums);
    const char* weights = static_cast<const char*>(tile.weights) + lane * 4;
    const float* inputs = inputs_begin;
    for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes * 4) {
      const auto* vectors = reinterpret_cast<const __m256i*>(weights);
      const __m256i low = _mm256_loadu_si256(vectors);
      const __m256i high = _mm256_loadu_si256(vectors + 1);
      if constexpr (kBf16) {
        multiply_add<kRows>(inputs, first_of_pairs(low), first_of_pairs(high), sums);
        multiply_add<kRows>(inputs + kRows, second_of_pairs(low), second_of_pairs(high), sums);
        inputs += 2 * kRows;
      } else {
        multiply_add<kRows>(inputs, _mm256_castsi256_ps(low), _mm256_castsi256_ps(high), sums);
        inputs += kRows;
      }
    }
    store_sums<kRows>(tile, lane, sums);
  }
}

template <bool kBf16>
void multiply_rows(const LinearTile& tile) {
  switch (tile.rows) {
    case 1:
      return multiply<1, kBf16>(tile);
    case 2:
      return multiply<2, kBf16>(tile);
    case 3:
      return multiply<3, kBf16>(tile);
    case 4:
      return multiply<4, kBf16>(tile);
    case 5:
      return multiply<5, kBf16>(tile);
    default:
      return multiply<6, kBf16>(tile);
  }
}

}  // namespace

void linear_bf16(const LinearTile& tile) {
  multiply_rows<true>(tile);
}
void linear_f32(const LinearTile& tile) {
  multiply_rows<false>(tile);
}

}  // namespace quire::ops::avx2
