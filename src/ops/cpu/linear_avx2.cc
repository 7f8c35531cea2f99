// Of 4 to 6 rows a panel's 64 lanes are four groups of two registers: 6 rows x 2 sums, 2 weights
// and a broadcast input are 15 of AVX2's 16 registers. Fewer rows take more lanes at once, so that
// enough sums are under way: two multiply-adds a cycle have a latency of 4 cycles. Each sum is one
// chain over the steps, so a row's sums do not depend on the rows beside it. What takes the sums is
// always inlined and unrolled, or they would lie in memory: GCC leaves some loops as they are, and
// sanitizers' checks make functions too long.
#include <immintrin.h>

#include "ops/cpu/fixed_rows.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

// Registers of lanes that are summed at once.
template <int kRows>
constexpr int vectors_at_once() {
  return kRows == 1 ? 8 : kRows <= 3 ? 4 : 2;
}

// The two values of a step of bfloat16 weights, for 8 lanes.
__m256 first_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
__m256 second_of_pairs(__m256i pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

// 16 numbers of float8 e4m3, shifted into the fields of a float16, whose exponent has another bias:
// divided by kF8Factor, exactly. 0x7f is NaN.
[[gnu::always_inline]] inline void widen_f8(const char* bytes, __m256& low, __m256& high) {
  const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(loaded), 7);
  const __m256i all_ones = _mm256_set1_epi16(0x3f80);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(shifted, all_ones), all_ones);
  const __m256i halves = _mm256_or_si256(
      _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xbfff))), nan);
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}
constexpr float kF8Factor = 256.0f;

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void store_sums(const LinearTile& tile, int lane,
                                              const __m256 (&sums)[kRows][kVectors]) {
  constexpr int kLanes = kVectors * 8;
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    float values[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) _mm256_storeu_ps(values + i * 8, sums[row][i]);
    float* out = tile.out + row * tile.out_stride + lane;
    for (int i = 0; i < kLanes && lane + i < tile.cols; ++i) {
      out[i] = tile.bias != nullptr ? values[i] + tile.bias[lane + i] : values[i];
    }
  }
}

// What the kernel for float8 ends with: the sums times a factor, and times the scales.
template <int kRows, int kVectors>
[[gnu::always_inline]] inline void scale_sums(const LinearTile& tile, int lane,
                                              __m256 (&sums)[kRows][kVectors]) {
  constexpr int kLanes = kVectors * 8;
  float scales[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    scales[i] = tile.scales != nullptr && lane + i < tile.cols ? tile.scales[lane + i] : 1.0f;
  }
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
      const __m256 sum = _mm256_mul_ps(sums[row][i], _mm256_set1_ps(kF8Factor));
      sums[row][i] = _mm256_mul_ps(sum, _mm256_loadu_ps(scales + i * 8));
    }
  }
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void load_sums(const LinearTile& tile, int lane,
                                             __m256 (&sums)[kRows][kVectors]) {
  constexpr int kLanes = kVectors * 8;
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    float values[kLanes] = {};
    const float* out = tile.out + row * tile.out_stride + lane;
    for (int i = 0; tile.accumulate && i < kLanes && lane + i < tile.cols; ++i) values[i] = out[i];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sums[row][i] = _mm256_loadu_ps(values + i * 8);
  }
}

template <int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_add(const float* inputs,
                                                const __m256 (&weights)[kVectors],
                                                __m256 (&sums)[kRows][kVectors]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    const __m256 x = _mm256_broadcast_ss(inputs + row);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sums[row][i] = _mm256_fmadd_ps(x, weights[i], sums[row][i]);
  }
}

template <int kRows, bool kBf16>
void multiply(const LinearTile& tile) {
  constexpr int kVectors = vectors_at_once<kRows>();
  const auto* inputs_begin = static_cast<const float*>(tile.activations);
  const auto* next = static_cast<const char*>(tile.next);
  const int64_t next_bytes = tile.next_bytes / (tile.steps * (kPanelLanes / 8 / kVectors));
  for (int lane = 0; lane < tile.cols; lane += kVectors * 8) {
    __m256 sums[kRows][kVectors];
    load_sums(tile, lane, sums);
    const char* weights = static_cast<const char*>(tile.weights) + lane * 4;
    const float* inputs = inputs_begin;
    for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes * 4) {
      _mm_prefetch(next, _MM_HINT_T1);
      next += next_bytes;
      const auto* words = reinterpret_cast<const __m256i*>(weights);
      __m256 values[kVectors];
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        const __m256i loaded = _mm256_loadu_si256(words + i);
        values[i] = kBf16 ? first_of_pairs(loaded) : _mm256_castsi256_ps(loaded);
      }
      multiply_add(inputs, values, sums);
      inputs += kRows;
      if constexpr (kBf16) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) {
          values[i] = second_of_pairs(_mm256_loadu_si256(words + i));
        }
        multiply_add(inputs, values, sums);
        inputs += kRows;
      }
    }
    store_sums(tile, lane, sums);
  }
}

template <int kRows>
void multiply_f8(const LinearTile& tile) {
  constexpr int kVectors = vectors_at_once<kRows>();
  const auto* next = static_cast<const char*>(tile.next);
  const int64_t next_bytes = tile.next_bytes / (tile.steps * (kPanelLanes / 8 / kVectors));
  for (int lane = 0; lane < tile.cols; lane += kVectors * 8) {
    __m256 sums[kRows][kVectors];
    load_sums(tile, lane, sums);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        sums[row][i] = _mm256_mul_ps(sums[row][i], _mm256_set1_ps(1 / kF8Factor));
      }
    }
    const char* weights = static_cast<const char*>(tile.weights) + lane;
    const auto* inputs = static_cast<const float*>(tile.activations);
    for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes, inputs += kRows) {
      _mm_prefetch(next, _MM_HINT_T1);
      next += next_bytes;
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; i += 2) {
        __m256 low, high;
        widen_f8(weights + i * 8, low, high);
#pragma GCC unroll 6
        for (int row = 0; row < kRows; ++row) {
          const __m256 x = _mm256_broadcast_ss(inputs + row);
          sums[row][i] = _mm256_fmadd_ps(x, low, sums[row][i]);
          sums[row][i + 1] = _mm256_fmadd_ps(x, high, sums[row][i + 1]);
        }
      }
    }
    scale_sums(tile, lane, sums);
    store_sums(tile, lane, sums);
  }
}

template <bool kBf16>
void multiply_rows(const LinearTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply<rows, kBf16>(tile); });
}

}  // namespace

void linear_f8(const LinearTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply_f8<rows>(tile); });
}

void linear_bf16(const LinearTile& tile) {
  multiply_rows<true>(tile);
}
void linear_f32(const LinearTile& tile) {
  multiply_rows<false>(tile);
}

}  // namespace quire::ops::avx2
