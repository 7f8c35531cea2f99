#pragma once
// A panel's 64 lanes as four registers, in products with integer weights: sums of rows, and the
// scales and offsets of a group. Only for files compiled for AVX-512 (see ops/cpu/kernels.h):
// everything here is local to the file that includes it.
#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes_avx512.h"

namespace quire::ops::avx512 {
namespace {

constexpr int kRegisters = kPanelLanes / 16;
constexpr int kStepBytes = kPanelLanes * 4;

// Of the scales, and of the offsets.
[[maybe_unused]] inline int header_bytes(const GroupTile& tile) {
  return kPanelLanes * tile.scale_bytes;
}

// What the tile's group has its int8 scales multiplied by, and behind them its offsets.
[[maybe_unused]] inline const float* block_of(const GroupTile& tile, int64_t group) {
  const int64_t floats = kPanelLanes * (tile.has_offsets ? 2 : 1);
  return tile.scale_blocks + ((tile.first_group + group) >> tile.block_shift) * floats;
}

// What the sums of the tile's rows start from; `sums` is aligned to 64. `rows` is tile.rows.
[[gnu::always_inline, maybe_unused]] inline void load_sums(const GroupTile& tile, int rows,
                                                           float (*sums)[kPanelLanes]) {
  for (int row = 0; row < rows; ++row) {
    for (int part = 0; part < kRegisters; ++part) {
      const __m512 sum = tile.accumulate
                             ? _mm512_maskz_loadu_ps(lanes_of(tile.cols, part),
                                                     tile.out + row * tile.out_stride + part * 16)
                             : _mm512_setzero_ps();
      _mm512_store_ps(sums[row] + part * 16, sum);
    }
  }
}

// To `out`, with the bias where there is one.
[[gnu::always_inline, maybe_unused]] inline void store_sums(const GroupTile& tile, int rows,
                                                            const float (*sums)[kPanelLanes]) {
  for (int part = 0; part < kRegisters; ++part) {
    const __mmask16 lanes = lanes_of(tile.cols, part);
    for (int row = 0; row < rows; ++row) {
      __m512 sum = _mm512_load_ps(sums[row] + part * 16);
      if (tile.bias != nullptr) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, tile.bias + part * 16));
      }
      _mm512_mask_storeu_ps(tile.out + row * tile.out_stride + part * 16, lanes, sum);
    }
  }
}

// The scales or offsets from lane `lane` on, which are at `header`; `block` is what they are
// multiplied by.
[[gnu::always_inline, maybe_unused]] inline __m512 load_header(const GroupTile& tile,
                                                               const char* header,
                                                               const float* block, int lane) {
  if (tile.scale_bytes == 4) return _mm512_loadu_ps(header + lane * 4);
  if (tile.scale_bytes == 1) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(header + lane));
    return _mm512_mul_ps(_mm512_loadu_ps(block + lane),
                         _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
  }
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(header + lane * 2));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

}  // namespace
}  // namespace quire::ops::avx512
