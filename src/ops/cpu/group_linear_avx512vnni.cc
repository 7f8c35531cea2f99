// Products with integer weights. vpdpbusd multiplies bytes by int8 and adds four products to each
// of 16 lanes; a panel's 64 lanes are four registers, and 6 rows x 4 sums, 4 weights and a
// broadcast input 29 of 32. Sums of a group are exact, so only the order of groups counts; the
// float32 sums over groups lie in the L1 cache.
#include <immintrin.h>

#include "ops/cpu/kernels.h"
#include "ops/cpu/lanes_avx512.h"

namespace quire::ops::avx512vnni {
namespace {

using avx512::lanes_of;

constexpr int kRegisters = kPanelLanes / 16;
constexpr int kStepBytes = kPanelLanes * 4;
// Bytes ahead of the weights in use that are asked for: about the latency of memory at its
// bandwidth a core, 100 ns x 35 GB/s.
constexpr int kPrefetchBytes = 4096;
constexpr int kMaxGroup = 128;

// Of the scales, and of the offsets.
int header_bytes(const GroupTile& tile) {
  return kPanelLanes * tile.scale_bytes;
}

// What the tile's group has its int8 scales multiplied by, and behind them its offsets.
const float* block_of(const GroupTile& tile, int64_t group) {
  const int64_t floats = kPanelLanes * (tile.has_offsets ? 2 : 1);
  return tile.scale_blocks + ((tile.first_group + group) >> tile.block_shift) * floats;
}

template <int kRows>
using Sums = float[kRows][kPanelLanes];

template <int kRows>
void load_sums(const GroupTile& tile, Sums<kRows>& sums) {
  for (int row = 0; row < kRows; ++row) {
    for (int part = 0; part < kRegisters; ++part) {
      const __m512 sum = tile.accumulate
                             ? _mm512_maskz_loadu_ps(lanes_of(tile.cols, part),
                                                     tile.out + row * tile.out_stride + part * 16)
                             : _mm512_setzero_ps();
      _mm512_store_ps(sums[row] + part * 16, sum);
    }
  }
}

template <int kRows>
void store_sums(const GroupTile& tile, const Sums<kRows>& sums) {
  for (int part = 0; part < kRegisters; ++part) {
    const __mmask16 lanes = lanes_of(tile.cols, part);
    for (int row = 0; row < kRows; ++row) {
      __m512 sum = _mm512_load_ps(sums[row] + part * 16);
      if (tile.bias != nullptr) {
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, tile.bias + part * 16));
      }
      _mm512_mask_storeu_ps(tile.out + row * tile.out_stride + part * 16, lanes, sum);
    }
  }
}

// sum += the four products of each lane. Around the intrinsic GCC 12 copies every sum, and so
// spills them.
[[gnu::always_inline]] inline void dot(__m512i& sum, __m512i bytes, __m512i inputs) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(inputs));
}

// Adds the products of one step's bytes.
template <int kRows>
[[gnu::always_inline]] inline void multiply_add(const int* inputs,
                                                const __m512i (&bytes)[kRegisters],
                                                __m512i (&products)[kRows][kRegisters]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    const __m512i x = _mm512_set1_epi32(inputs[row]);
#pragma GCC unroll 4
    for (int part = 0; part < kRegisters; ++part) dot(products[row][part], bytes[part], x);
  }
}

// Adds the products of a group, one byte or one half byte at a time. Bytes are read again for their
// high halves: both halves would not fit the registers.
template <int kRows, bool kHalves>
[[gnu::always_inline]] inline void multiply_group(const char* data, const int* inputs,
                                                  int group_size,
                                                  __m512i (&products)[kRows][kRegisters]) {
  const __m512i low_half = _mm512_set1_epi8(15);
  for (int i = 0; i < group_size; i += kHalves ? 8 : 4, data += kStepBytes) {
    __m512i bytes[kRegisters];
#pragma GCC unroll 4
    for (int part = 0; part < kRegisters; ++part) {
      if (kRows == 1) _mm_prefetch(data + kPrefetchBytes + part * 64, _MM_HINT_T0);
      bytes[part] = _mm512_loadu_si512(data + part * 64);
      if (kHalves) bytes[part] = _mm512_and_si512(bytes[part], low_half);
    }
    multiply_add<kRows>(inputs, bytes, products);
    inputs += kRows;
    if constexpr (kHalves) {
#pragma GCC unroll 4
      for (int part = 0; part < kRegisters; ++part) {
        const __m512i halves = _mm512_srli_epi16(_mm512_loadu_si512(data + part * 64), 4);
        bytes[part] = _mm512_and_si512(halves, low_half);
      }
      multiply_add<kRows>(inputs, bytes, products);
      inputs += kRows;
    }
  }
}

// The scales or offsets from lane `lane` on, which are at `header`; `block` is what they are
// multiplied by.
[[gnu::always_inline]] inline __m512 load_header(const GroupTile& tile, const char* header,
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

// sums += products * scales, and offsets.
template <int kRows, bool kOffsets>
[[gnu::always_inline]] inline void add_group(const GroupTile& tile, const char* header,
                                             const float* block, const float* row_scales,
                                             const __m512i (&products)[kRows][kRegisters],
                                             Sums<kRows>& sums) {
#pragma GCC unroll 4
  for (int part = 0; part < kRegisters; ++part) {
    const __m512 scales = load_header(tile, header, block, part * 16);
    __m512 offsets = _mm512_setzero_ps();
    if (kOffsets) {
      offsets = load_header(tile, header + header_bytes(tile), block + kPanelLanes, part * 16);
    }
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      float* at = sums[row] + part * 16;
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(row_scales[row]));
      __m512 sum =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(products[row][part]), scale, _mm512_load_ps(at));
      if (kOffsets) sum = _mm512_fmadd_ps(_mm512_set1_ps(row_scales[kRows + row]), offsets, sum);
      _mm512_store_ps(at, sum);
    }
  }
}

template <int kRows, bool kHalves, bool kOffsets>
void multiply(const GroupTile& tile) {
  alignas(64) Sums<kRows> sums;
  load_sums<kRows>(tile, sums);
  const auto* weights = static_cast<const char*>(tile.weights);
  const auto* activations = static_cast<const char*>(tile.activations);
  const int data_begin = header_bytes(tile) * (kOffsets ? 2 : 1);
  const int data_bytes = kPanelLanes * tile.group_size / (kHalves ? 2 : 1);
  for (int64_t group = 0; group < tile.groups; ++group) {
    const auto* starts = reinterpret_cast<const int*>(activations);
    __m512i products[kRows][kRegisters];
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
      for (int part = 0; part < kRegisters; ++part) {
        products[row][part] = _mm512_set1_epi32(starts[row]);
      }
    }
    multiply_group<kRows, kHalves>(weights + data_begin, starts + 3 * kRows, tile.group_size,
                                   products);
    add_group<kRows, kOffsets>(tile, weights, block_of(tile, group),
                               reinterpret_cast<const float*>(starts + kRows), products, sums);
    weights += data_begin + data_bytes;
    activations += (kInt8GroupHeader + tile.group_size) * kRows;
  }
  store_sums<kRows>(tile, sums);
}

template <int kRows, bool kHalves>
void multiply(const GroupTile& tile) {
  return tile.has_offsets ? multiply<kRows, kHalves, true>(tile)
                          : multiply<kRows, kHalves, false>(tile);
}

template <bool kHalves>
void multiply_rows(const GroupTile& tile) {
  switch (tile.rows) {
    case 1:
      return multiply<1, kHalves>(tile);
    case 2:
      return multiply<2, kHalves>(tile);
    case 3:
      return multiply<3, kHalves>(tile);
    case 4:
      return multiply<4, kHalves>(tile);
    case 5:
      return multiply<5, kHalves>(tile);
    default:
      return multiply<6, kHalves>(tile);
  }
}

// The inputs of a group of a row as they lie, or gathered, with zeros after the row's end.
const float* take_group(const Int8Rows& rows, int row, int64_t first, float* gathered) {
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
unsigned largest_bits(const float* values, int count) {
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < count; i += 16) {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_loadu_si512(values + i), _mm512_set1_epi32(0x7fffffff));
    largest = _mm512_max_epu32(largest, magnitude);
  }
  return _mm512_reduce_max_epu32(largest);
}

// Rounds a group of one row; returns the sum of its integers.
int round_group(const float* values, int count, float inverse, int stride, int* words) {
  __m512i sum = _mm512_setzero_si512();
  for (int i = 0; i < count; i += 16) {
    const __m512i integers =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(values + i), _mm512_set1_ps(inverse)));
    sum = _mm512_add_epi32(sum, integers);
    const __m128i bytes = _mm512_cvtepi32_epi8(integers);
    words[0] = _mm_extract_epi32(bytes, 0);
    words[stride] = _mm_extract_epi32(bytes, 1);
    words[2 * stride] = _mm_extract_epi32(bytes, 2);
    words[3 * stride] = _mm_extract_epi32(bytes, 3);
    words += 4 * stride;
  }
  return _mm512_reduce_add_epi32(sum);
}

}  // namespace

void pack_i8(const Int8Rows& rows) {
  constexpr unsigned kInfinity = 0x7f800000;
  auto* out = static_cast<char*>(rows.out);
  for (int64_t first = 0; first < rows.k; first += rows.group_size) {
    auto* starts = reinterpret_cast<int*>(out);
    auto* scales = reinterpret_cast<float*>(starts + rows.rows);
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
      int sum = 0;
      int* words = starts + 3 * rows.rows + row;
      if (rounds) {
        sum = round_group(values, rows.group_size, inverse, rows.rows, words);
      } else {
        for (int i = 0; i < rows.group_size / 4; ++i) words[i * rows.rows] = 0;
      }
      starts[row] = -rows.excess * sum;
      scales[row] = scale;
      scales[rows.rows + row] = scale * static_cast<float>(sum);
    }
    out += (kInt8GroupHeader + rows.group_size) * rows.rows;
  }
}

void linear_i8(const GroupTile& tile) {
  multiply_rows<false>(tile);
}
void linear_i4(const GroupTile& tile) {
  multiply_rows<true>(tile);
}
// The bytes are multiplied as int8's are; what they are more than the integers is in the packed
// activations.
void linear_unpacked_i4(const GroupTile& tile) {
  multiply_rows<false>(tile);
}

void unpack_i4(const void* data, int64_t bytes, void* out) {
  const __m512i low_half = _mm512_set1_epi8(15);
  const auto* in = static_cast<const char*>(data);
  auto* unpacked = static_cast<char*>(out);
  for (int64_t step = 0; step < bytes; step += kStepBytes, unpacked += 2 * kStepBytes) {
    for (int part = 0; part < kRegisters; ++part) {
      const __m512i halves = _mm512_loadu_si512(in + step + part * 64);
      _mm512_storeu_si512(unpacked + part * 64, _mm512_and_si512(halves, low_half));
      _mm512_storeu_si512(unpacked + kStepBytes + part * 64,
                          _mm512_and_si512(_mm512_srli_epi16(halves, 4), low_half));
    }
  }
}

}  // namespace quire::ops::avx512vnni
