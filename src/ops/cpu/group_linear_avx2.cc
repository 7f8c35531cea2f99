// Products with integer weights, of 8 lanes in a register. vpmaddubsw multiplies bytes by int8 and
// adds pairs of products, saturating at 16 bits; no sum here gets there:
//   int8: |weight| <= 128 by an input of its sign, of -127 to 127: 2 x 128 x 127 = 32,512
//   int4: a half byte, 0 to 15, by an input: 2 x 15 x 127 = 3,810, and eight of these 30,480
// So sums of a group are exact, and only the order of groups counts; the float32 sums over groups
// lie in the L1 cache.
#include <immintrin.h>

#include "ops/cpu/group_lanes_avx2.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kMaxGroup = 128;
// Inputs whose products with half bytes fit 16 bits.
constexpr int kHalfInputs = 32;

// A group of weights: of int8, int4, or int4 in int8's layout.
enum class Data { kInt8, kInt4, kUnpackedInt4 };

// int8: products += inputs * (bytes - 128), of one step.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void multiply_int8(const char* data, const int* inputs,
                                                 __m256i (&products)[kRows][kColumns]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (int column = 0; column < kColumns; ++column) {
    const __m256i weights =
        _mm256_xor_si256(load(data + column * 32), _mm256_set1_epi8(static_cast<char>(0x80)));
    const __m256i magnitudes = _mm256_abs_epi8(weights);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const __m256i signed_inputs = _mm256_sign_epi8(_mm256_set1_epi32(inputs[row]), weights);
      const __m256i pairs = _mm256_maddubs_epi16(magnitudes, signed_inputs);
      products[row][column] =
          _mm256_add_epi32(products[row][column], _mm256_madd_epi16(pairs, ones));
    }
  }
}

// pairs += inputs * half bytes, of one step.
template <int kRows, int kColumns>
[[gnu::always_inline]] inline void multiply_halves(const int* inputs,
                                                   const __m256i (&halves)[kColumns],
                                                   __m256i (&pairs)[kRows][kColumns]) {
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    const __m256i x = _mm256_set1_epi32(inputs[row]);
#pragma GCC unroll 4
    for (int column = 0; column < kColumns; ++column) {
      pairs[row][column] =
          _mm256_add_epi16(pairs[row][column], _mm256_maddubs_epi16(halves[column], x));
    }
  }
}

// int4: products += inputs * half bytes, of up to kHalfInputs.
template <int kRows, int kColumns, Data kData>
[[gnu::always_inline]] inline void multiply_int4(const char* data, const int* inputs, int count,
                                                 __m256i (&products)[kRows][kColumns]) {
  const __m256i low_half = _mm256_set1_epi8(15);
  __m256i pairs[kRows][kColumns];
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int column = 0; column < kColumns; ++column) {
      pairs[row][column] = _mm256_setzero_si256();
    }
  }
  for (int i = 0; i < count; i += kData == Data::kInt4 ? 8 : 4, data += kStepBytes) {
    __m256i halves[kColumns];
#pragma GCC unroll 4
    for (int column = 0; column < kColumns; ++column) halves[column] = load(data + column * 32);
    if constexpr (kData == Data::kInt4) {
      __m256i low[kColumns];
#pragma GCC unroll 4
      for (int column = 0; column < kColumns; ++column) {
        low[column] = _mm256_and_si256(halves[column], low_half);
        halves[column] = _mm256_and_si256(_mm256_srli_epi16(halves[column], 4), low_half);
      }
      multiply_halves<kRows, kColumns>(inputs, low, pairs);
      inputs += kRows;
    }
    multiply_halves<kRows, kColumns>(inputs, halves, pairs);
    inputs += kRows;
  }
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 4
    for (int column = 0; column < kColumns; ++column) {
      products[row][column] =
          _mm256_add_epi32(products[row][column], _mm256_madd_epi16(pairs[row][column], ones));
    }
  }
}

template <int kRows, int kColumns, Data kData>
[[gnu::always_inline]] inline void multiply_group(const char* data, const int* inputs,
                                                  int group_size,
                                                  __m256i (&products)[kRows][kColumns]) {
  if constexpr (kData == Data::kInt8) {
    for (int i = 0; i < group_size; i += 4, data += kStepBytes, inputs += kRows) {
      multiply_int8<kRows, kColumns>(data, inputs, products);
    }
  } else {
    for (int i = 0; i < group_size; i += kHalfInputs) {
      const int count = group_size - i < kHalfInputs ? group_size - i : kHalfInputs;
      multiply_int4<kRows, kColumns, kData>(data, inputs, count, products);
      data += kPanelLanes * count / (kData == Data::kInt4 ? 2 : 1);
      inputs += count / 4 * kRows;
    }
  }
}

// Products of a group of one kind of weights, for multiply_rows().
template <Data kData>
struct Products {
  static constexpr bool kHalves = kData == Data::kInt4;
  static constexpr bool kFromStarts = kData != Data::kInt8;
  // With those of one row several read the weights in a wider stream, with the sums of 6 rows one
  // of int8 fills the 16 registers, and two of int4's, which needs an input in a register for fewer
  // instructions.
  static constexpr int columns(int rows) {
    return rows == 1 ? 4 : rows > 3 && kData == Data::kInt8 ? 1 : 2;
  }
  template <int kRows>
  [[gnu::always_inline]] static void multiply_group(const char* data, const int* inputs,
                                                    int group_size,
                                                    __m256i (&products)[kRows][columns(kRows)]) {
    avx2::multiply_group<kRows, columns(kRows), kData>(data, inputs, group_size, products);
  }
};

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
int largest_bits(const float* values, int count) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < count; i += 8) {
    const __m256i magnitude = _mm256_and_si256(load(reinterpret_cast<const char*>(values + i)),
                                               _mm256_set1_epi32(0x7fffffff));
    largest = _mm256_max_epi32(largest, magnitude);
  }
  __m128i four =
      _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

// Rounds a group of one row; returns the sum of its integers.
int round_group(const float* values, int count, float inverse, int stride, int* words) {
  __m256i sum = _mm256_setzero_si256();
  for (int i = 0; i < count; i += 8, words += 2 * stride) {
    const __m256i integers =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + i), _mm256_set1_ps(inverse)));
    sum = _mm256_add_epi32(sum, integers);
    const __m128i shorts =
        _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    const __m128i bytes = _mm_packs_epi16(shorts, shorts);
    words[0] = _mm_extract_epi32(bytes, 0);
    words[stride] = _mm_extract_epi32(bytes, 1);
  }
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

}  // namespace

void pack_i8(const Int8Rows& rows) {
  constexpr int kInfinity = 0x7f800000;
  auto* out = static_cast<char*>(rows.out);
  for (int64_t first = 0; first < rows.k; first += rows.group_size) {
    auto* starts = reinterpret_cast<int*>(out);
    auto* scales = reinterpret_cast<float*>(starts + rows.rows);
    for (int row = 0; row < rows.rows; ++row) {
      float gathered[kMaxGroup];
      const float* values = take_group(rows, row, first, gathered);
      const int bits = largest_bits(values, rows.group_size);
      const float largest = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
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
  multiply_rows<Products<Data::kInt8>>(tile);
}
void linear_i4(const GroupTile& tile) {
  multiply_rows<Products<Data::kInt4>>(tile);
}
void linear_unpacked_i4(const GroupTile& tile) {
  multiply_rows<Products<Data::kUnpackedInt4>>(tile);
}

void unpack_i4(const void* data, int64_t bytes, void* out) {
  const __m256i low_half = _mm256_set1_epi8(15);
  const auto* in = static_cast<const char*>(data);
  auto* unpacked = static_cast<char*>(out);
  for (int64_t step = 0; step < bytes; step += kStepBytes, unpacked += 2 * kStepBytes) {
    for (int i = 0; i < kStepBytes; i += 32) {
      const __m256i halves = load(in + step + i);
      auto* low = reinterpret_cast<__m256i*>(unpacked + i);
      auto* high = reinterpret_cast<__m256i*>(unpacked + kStepBytes + i);
      _mm256_storeu_si256(low, _mm256_and_si256(halves, low_half));
      _mm256_storeu_si256(high, _mm256_and_si256(_mm256_srli_epi16(halves, 4), low_half));
    }
  }
}

}  // namespace quire::ops::avx2
