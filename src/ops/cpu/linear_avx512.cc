// Panels of 64 output features are four registers; a row's pair of inputs is broadcast against
// them. Each of the rows x 4 accumulators is one chain over the steps, so a row's sums do not
// depend on the rows beside it.
#include <immintrin.h>

#include "ops/cpu/fixed_rows.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes_avx512.h"

namespace quire::ops::avx512 {
namespace {

constexpr int kRegisters = kPanelLanes / 16;
// Bytes ahead of the weights in use that are asked for: about the latency of memory at its
// bandwidth a core, 100 ns x 35 GB/s.
constexpr int kPrefetchBytes = 4096;

template <int kRows>
void load_sums(const LinearTile& tile, __m512 (&sums)[kRows][kRegisters]) {
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < kRegisters; ++part) {
      sums[row][part] = tile.accumulate
                            ? _mm512_maskz_loadu_ps(lanes_of(tile.cols, part),
                                                    tile.out + row * tile.out_stride + part * 16)
                            : _mm512_setzero_ps();
    }
  }
}

template <int kRows>
void store_sums(const LinearTile& tile, const __m512 (&sums)[kRows][kRegisters]) {
  for (int part = 0; part < kRegisters; ++part) {
    const __mmask16 lanes = lanes_of(tile.cols, part);
    const __m512 bias = tile.bias != nullptr ? _mm512_maskz_loadu_ps(lanes, tile.bias + part * 16)
                                             : _mm512_setzero_ps();
    for (int row = 0; row < kRows; ++row) {
      // A missing bias must not turn -0 into 0 for some calls and not for others: it never does,
      // since it is missing or given for a whole op.
      const __m512 sum =
          tile.bias != nullptr ? _mm512_add_ps(sums[row][part], bias) : sums[row][part];
      _mm512_mask_storeu_ps(tile.out + row * tile.out_stride + part * 16, lanes, sum);
    }
  }
}

template <int kRows>
void multiply_bf16(const LinearTile& tile) {
  __m512 sums[kRows][kRegisters];
  load_sums<kRows>(tile, sums);
  const char* weights = static_cast<const char*>(tile.weights);
  const auto* inputs = static_cast<const int*>(tile.activations);  // pairs
  for (int64_t step = 0; step < tile.steps; ++step, weights += 256, inputs += kRows) {
    __m512bh w[kRegisters];
    for (int part = 0; part < kRegisters; ++part) {
      if (kRows == 1) _mm_prefetch(weights + kPrefetchBytes + part * 64, _MM_HINT_T0);
      w[part] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(weights + part * 64));
    }
    for (int row = 0; row < kRows; ++row) {
      const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_epi32(inputs[row]));
      for (int part = 0; part < kRegisters; ++part) {
        sums[row][part] = _mm512_dpbf16_ps(sums[row][part], x, w[part]);
      }
    }
  }
  store_sums<kRows>(tile, sums);
}

template <int kRows>
void multiply_f32(const LinearTile& tile) {
  __m512 sums[kRows][kRegisters];
  load_sums<kRows>(tile, sums);
  const auto* weights = static_cast<const float*>(tile.weights);
  const auto* inputs = static_cast<const float*>(tile.activations);
  for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes, inputs += kRows) {
    __m512 w[kRegisters];
    for (int part = 0; part < kRegisters; ++part) {
      if (kRows == 1) {
        _mm_prefetch(reinterpret_cast<const char*>(weights + part * 16) + kPrefetchBytes,
                     _MM_HINT_T0);
      }
      w[part] = _mm512_loadu_ps(weights + part * 16);
    }
    for (int row = 0; row < kRows; ++row) {
      const __m512 x = _mm512_set1_ps(inputs[row]);
      for (int part = 0; part < kRegisters; ++part) {
        sums[row][part] = _mm512_fmadd_ps(x, w[part], sums[row][part]);
      }
    }
  }
  store_sums<kRows>(tile, sums);
}

// 32 numbers of float8 e4m3 as those of float16, whose exponent has another bias: divided by 256,
// exactly. NaN comes out as 480 / 256.
__m512i narrow_halves(__m256i bytes) {
  const __m512i shifted = _mm512_slli_epi16(_mm512_cvtepi8_epi16(bytes), 7);
  return _mm512_and_si512(shifted, _mm512_set1_epi16(static_cast<int16_t>(0xbfff)));
}
constexpr float kF8Factor = 256.0f;

// What the kernel for float8 ends with: sums times the factor, and times the scales.
template <int kRows>
void scale_sums(const LinearTile& tile, __m512i largest, __m512 (&sums)[kRows][kRegisters]) {
  const __mmask64 nan = _mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(static_cast<char>(0xfe)));
  for (int part = 0; part < kRegisters; ++part) {
    const auto nan_lanes = static_cast<__mmask16>(nan >> (part * 16));
    const __m512 scales = tile.scales != nullptr ? _mm512_maskz_loadu_ps(lanes_of(tile.cols, part),
                                                                         tile.scales + part * 16)
                                                 : _mm512_set1_ps(1.0f);
    for (int row = 0; row < kRows; ++row) {
      const __m512 sum =
          _mm512_mask_mov_ps(_mm512_mul_ps(sums[row][part], _mm512_set1_ps(kF8Factor)), nan_lanes,
                             _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
      sums[row][part] = _mm512_mul_ps(sum, scales);
    }
  }
}

// A byte's magnitude is compared with NaN's once a lane, after all steps: such a weight makes every
// sum of its lane NaN, whatever it is multiplied by.
template <int kRows>
void multiply_f8(const LinearTile& tile) {
  __m512 sums[kRows][kRegisters];
  load_sums<kRows>(tile, sums);
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < kRegisters; ++part) {
      sums[row][part] = _mm512_mul_ps(sums[row][part], _mm512_set1_ps(1 / kF8Factor));
    }
  }
  const char* weights = static_cast<const char*>(tile.weights);
  const auto* inputs = static_cast<const float*>(tile.activations);
  const auto* next = static_cast<const char*>(tile.next);
  const int64_t next_bytes = tile.next_bytes / tile.steps;
  __m512i largest = _mm512_setzero_si512();  // of the magnitudes, doubled
  for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes, inputs += kRows) {
    if (kRows == 1) {
      _mm_prefetch(weights + kPrefetchBytes, _MM_HINT_T0);
    } else {
      _mm_prefetch(next, _MM_HINT_T1);
      next += next_bytes;
    }
    const __m512i bytes = _mm512_loadu_si512(weights);
    largest = _mm512_max_epu8(largest, _mm512_add_epi8(bytes, bytes));
    const __m512i halves[2] = {
        narrow_halves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights))),
        narrow_halves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 32)))};
    const __m512 w[kRegisters] = {_mm512_cvtph_ps(_mm512_castsi512_si256(halves[0])),
                                  _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves[0], 1)),
                                  _mm512_cvtph_ps(_mm512_castsi512_si256(halves[1])),
                                  _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves[1], 1))};
    for (int row = 0; row < kRows; ++row) {
      const __m512 x = _mm512_set1_ps(inputs[row]);
      for (int part = 0; part < kRegisters; ++part) {
        sums[row][part] = _mm512_fmadd_ps(x, w[part], sums[row][part]);
      }
    }
  }
  scale_sums<kRows>(tile, largest, sums);
  store_sums<kRows>(tile, sums);
}

}  // namespace

void linear_f8(const LinearTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply_f8<rows>(tile); });
}

void linear_bf16(const LinearTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply_bf16<rows>(tile); });
}

void linear_f32(const LinearTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply_f32<rows>(tile); });
}

void pack_bf16(const float* in, int64_t stride, int rows, int64_t k, uint16_t* out) {
  auto* pairs = reinterpret_cast<uint32_t*>(out);
  for (int row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; i += 16) {
      const int64_t left = k - i;
      const __mmask16 lanes = left >= 16 ? __mmask16(0xffff) : __mmask16((1u << left) - 1);
      const __m512 values = _mm512_maskz_loadu_ps(lanes, in + row * stride + i);
      uint32_t rounded[8];
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(rounded),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
      const int64_t steps = left >= 16 ? 8 : (left + 1) / 2;
      for (int64_t j = 0; j < steps; ++j) pairs[(i / 2 + j) * rows + row] = rounded[j];
    }
  }
}

}  // namespace quire::ops::avx512
