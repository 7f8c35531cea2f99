#pragma once
// A panel's 64 lanes, 8 in a register, in products with integer weights: the walk over groups and
// columns of lanes, with the float32 sums of rows in the L1 cache. Only for files compiled for AVX2
// (see ops/cpu/kernels.h): everything here is local to the file that includes it.
#include <immintrin.h>

#include "ops/cpu/fixed_rows.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kLanes = 8;
constexpr int kStepBytes = kPanelLanes * 4;

[[maybe_unused]] inline __m256i load(const char* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Of the scales, and of the offsets.
inline int header_bytes(const GroupTile& tile) {
  return kPanelLanes * tile.scale_bytes;
}

// What the tile's group has its int8 scales multiplied by, and behind them its offsets.
inline const float* block_of(const GroupTile& tile, int64_t group) {
  const int64_t floats = kPanelLanes * (tile.has_offsets ? 2 : 1);
  return tile.scale_blocks + ((tile.first_group + group) >> tile.block_shift) * floats;
}

// The scales or offsets from lane `lane` on, which are at `header`; `block` is what they are
// multiplied by.
[[gnu::always_inline]] inline __m256 load_header(const GroupTile& tile, const char* header,
                                                 const float* block, int lane) {
  if (tile.scale_bytes == 4) return _mm256_loadu_ps(reinterpret_cast<const float*>(header) + lane);
  if (tile.scale_bytes == 1) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(header + lane));
    return _mm256_mul_ps(_mm256_loadu_ps(block + lane),
                         _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
  }
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(header + lane * 2));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

// sums += products * scales, and offsets, of the columns from `lane` on.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void add_group(const GroupTile& tile, const char* header,
                                             const float* block, int lane, const float* row_scales,
                                             const __m256i (&products)[kRows][kColumns],
                                             float (*sums)[kPanelLanes]) {
#pragma GCC unroll 8
  for (int column = 0; column < kColumns; ++column) {
    const int first = lane + column * kLanes;
    const __m256 scales = load_header(tile, header, block, first);
    const __m256 offsets = tile.has_offsets ? load_header(tile, header + header_bytes(tile),
                                                          block + kPanelLanes, first)
                                            : _mm256_setzero_ps();
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      float* out = sums[row] + first;
      const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(row_scales[row]));
      __m256 sum =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(products[row][column]), scale, _mm256_loadu_ps(out));
      if (tile.has_offsets) {
        sum = _mm256_fmadd_ps(_mm256_set1_ps(row_scales[kRows + row]), offsets, sum);
      }
      _mm256_storeu_ps(out, sum);
    }
  }
}

template <int kRows>
void load_sums(const GroupTile& tile, float (*sums)[kPanelLanes]) {
  for (int row = 0; row < kRows; ++row) {
    for (int lane = 0; lane < kPanelLanes; ++lane) {
      sums[row][lane] =
          tile.accumulate && lane < tile.cols ? tile.out[row * tile.out_stride + lane] : 0.0f;
    }
  }
}

template <int kRows>
void store_sums(const GroupTile& tile, const float (*sums)[kPanelLanes]) {
  for (int row = 0; row < kRows; ++row) {
    float* out = tile.out + row * tile.out_stride;
    for (int lane = 0; lane < tile.cols; ++lane) {
      out[lane] = tile.bias != nullptr ? sums[row][lane] + tile.bias[lane] : sums[row][lane];
    }
  }
}

// Multiplies a tile of kRows rows. Of a kind of integers Products says:
//   kHalves            two are in a byte
//   kFromStarts        sums begin with what the rows' groups say, else with zero
//   columns(rows)      registers of lanes that are summed at once
//   multiply_group(data, inputs, group_size, products)  adds a group's products
template <typename Products, int kRows>
void multiply(const GroupTile& tile) {
  constexpr int kColumns = Products::columns(kRows);
  float sums[kRows][kPanelLanes];
  load_sums<kRows>(tile, sums);
  const auto* weights = static_cast<const char*>(tile.weights);
  const auto* activations = static_cast<const char*>(tile.activations);
  const int data_begin = header_bytes(tile) * (tile.has_offsets ? 2 : 1);
  const int data_bytes = kPanelLanes * tile.group_size / (Products::kHalves ? 2 : 1);
  const auto* next = static_cast<const char*>(tile.next);
  const int64_t next_bytes = tile.next_bytes / tile.groups;
  for (int64_t group = 0; group < tile.groups; ++group) {
    const auto* starts = reinterpret_cast<const int*>(activations);
    for (int64_t i = 0; i < next_bytes; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
    next += next_bytes;
    for (int lane = 0; lane < kPanelLanes; lane += kColumns * kLanes) {
      __m256i products[kRows][kColumns];
#pragma GCC unroll 6
      for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
        for (int column = 0; column < kColumns; ++column) {
          products[row][column] =
              Products::kFromStarts ? _mm256_set1_epi32(starts[row]) : _mm256_setzero_si256();
        }
      }
      Products::template multiply_group<kRows>(weights + data_begin + lane * 4, starts + 3 * kRows,
                                               tile.group_size, products);
      add_group<kRows, kColumns>(tile, weights, block_of(tile, group), lane,
                                 reinterpret_cast<const float*>(starts + kRows), products, sums);
    }
    weights += data_begin + data_bytes;
    activations += (kInt8GroupHeader + tile.group_size) * kRows;
  }
  store_sums<kRows>(tile, sums);
}

template <typename Products>
void multiply_rows(const GroupTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply<Products, rows>(tile); });
}

}  // namespace
}  // namespace quire::ops::avx2
