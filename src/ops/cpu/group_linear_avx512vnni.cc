// Products with integer weights. vpdpbusd multiplies bytes by int8 and adds four products to each
// of 16 lanes; a panel's 64 lanes are four registers, and 6 rows x 4 sums, 4 weights and a
// broadcast input 29 of 32. Sums of a group are exact, so only the order of groups counts; the
// float32 sums over groups lie in the L1 cache.
#include <immintrin.h>

#include "ops/cpu/fixed_rows.h"
#include "ops/cpu/group_lanes_avx512.h"
#include "ops/cpu/group_rows_avx512.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx512vnni {
namespace {

using avx512::block_of;
using avx512::header_bytes;
using avx512::kRegisters;
using avx512::kStepBytes;
using avx512::load_header;

// Bytes ahead of the weights in use that are asked for: about the latency of memory at its
// bandwidth a core, 100 ns x 35 GB/s.
constexpr int kPrefetchBytes = 4096;

template <int kRows>
using Sums = float[kRows][kPanelLanes];

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
  avx512::load_sums(tile, kRows, sums);
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
  avx512::store_sums(tile, kRows, sums);
}

template <int kRows, bool kHalves>
void multiply(const GroupTile& tile) {
  return tile.has_offsets ? multiply<kRows, kHalves, true>(tile)
                          : multiply<kRows, kHalves, false>(tile);
}

template <bool kHalves>
void multiply_rows(const GroupTile& tile) {
  with_fixed_rows(tile.rows, [&tile](auto rows) { multiply<rows, kHalves>(tile); });
}

}  // namespace

void pack_i8(const Int8Rows& rows) {
  const int num_rows = rows.rows;
  avx512::pack_groups(rows, num_rows, [num_rows](__m128i bytes, char* data, int row, int i) {
    int* const words = reinterpret_cast<int*>(data) + i / 4 * num_rows + row;
    words[0] = _mm_extract_epi32(bytes, 0);
    words[num_rows] = _mm_extract_epi32(bytes, 1);
    words[2 * num_rows] = _mm_extract_epi32(bytes, 2);
    words[3 * num_rows] = _mm_extract_epi32(bytes, 3);
  });
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
