#include <immintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kLanes = 8;

float sum_of_lanes(__m256 lanes) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

__m256 rounded(__m256 values, const GroupRounding& rounding) {
  const __m256 integers = _mm256_round_ps(
      _mm256_fmadd_ps(values, _mm256_set1_ps(rounding.inverse), _mm256_set1_ps(rounding.shift)),
      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_min_ps(_mm256_max_ps(integers, _mm256_set1_ps(rounding.low)),
                       _mm256_set1_ps(rounding.high));
}

// What the constructors of the two kinds of float8 (core/dtype.cc says why) are made with.
struct E4M3 {
  static constexpr int kDroppedBits = 20;     // of a float32's fraction
  static constexpr int kBias = 0x3c000000;    // between the exponents
  static constexpr int kNormal = 0x3c800000;  // 2^-6
  static constexpr float kShift = 0x1p14f;    // rounds subnormal numbers
  static constexpr int kShiftBits = 0x46800000;
  static constexpr int kLargest = 0x43e00000;  // 448
  static constexpr int kLargestCode = 0x7e;
};
struct E5M2 {
  static constexpr int kDroppedBits = 21;
  static constexpr int kBias = 0x38000000;
  static constexpr int kNormal = 0x38800000;  // 2^-14
  static constexpr float kShift = 0x1p7f;
  static constexpr int kShiftBits = 0x43000000;
  static constexpr int kLargest = 0x47600000;  // 57344
  static constexpr int kLargestCode = 0x7b;
};

// One byte in each lane.
template <typename Float8>
__m256i float8_of(__m256 values) {
  constexpr int kBelowHalf = (1 << (Float8::kDroppedBits - 1)) - 1;
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i odd =
      _mm256_and_si256(_mm256_srli_epi32(magnitude, Float8::kDroppedBits), _mm256_set1_epi32(1));
  const __m256i normal = _mm256_srli_epi32(
      _mm256_add_epi32(magnitude,
                       _mm256_sub_epi32(odd, _mm256_set1_epi32(Float8::kBias - kBelowHalf))),
      Float8::kDroppedBits);
  const __m256 shifted =
      _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(Float8::kShift));
  const __m256i subnormal =
      _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(Float8::kShiftBits));
  const auto from = [&](int limit) {
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(limit - 1));
  };
  __m256i result = _mm256_blendv_epi8(subnormal, normal, from(Float8::kNormal));
  result =
      _mm256_blendv_epi8(result, _mm256_set1_epi32(Float8::kLargestCode), from(Float8::kLargest));
  result = _mm256_blendv_epi8(result, _mm256_set1_epi32(0x7f), from(0x7f800001));  // NaN
  return _mm256_or_si256(result,
                         _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80)));
}

template <typename Float8>
void round_to(const float* values, int count, uint8_t* out) {
  for (int i = 0; i < count; i += kLanes) {
    const __m256i bytes = float8_of<Float8>(_mm256_loadu_ps(values + i));
    const __m128i shorts =
        _mm_packus_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i), _mm_packus_epi16(shorts, shorts));
  }
}

}  // namespace

void sum_group(const float* values, int count, GroupSums* sums) {
  __m256 low = _mm256_loadu_ps(values), high = low;
  __m256 sum = _mm256_setzero_ps(), squares = sum;
  for (int i = 0; i < count; i += kLanes) {
    const __m256 eight = _mm256_loadu_ps(values + i);
    low = _mm256_min_ps(low, eight);
    high = _mm256_max_ps(high, eight);
    sum = _mm256_add_ps(sum, eight);
    squares = _mm256_fmadd_ps(eight, eight, squares);
  }
  float lows[kLanes], highs[kLanes];
  _mm256_storeu_ps(lows, low);
  _mm256_storeu_ps(highs, high);
  for (int i = 1; i < kLanes; ++i) {
    if (lows[i] < lows[0]) lows[0] = lows[i];
    if (highs[i] > highs[0]) highs[0] = highs[i];
  }
  *sums = {lows[0], highs[0], sum_of_lanes(sum), sum_of_lanes(squares)};
}

void fit_group(const float* values, int count, const GroupRounding& rounding, GroupFit* fit) {
  __m256 sum = _mm256_setzero_ps(), squares = sum, products = sum;
  for (int i = 0; i < count; i += kLanes) {
    const __m256 eight = _mm256_loadu_ps(values + i);
    const __m256 integers = rounded(eight, rounding);
    sum = _mm256_add_ps(sum, integers);
    squares = _mm256_fmadd_ps(integers, integers, squares);
    products = _mm256_fmadd_ps(eight, integers, products);
  }
  *fit = {sum_of_lanes(sum), sum_of_lanes(squares), sum_of_lanes(products)};
}

void round_group(const float* values, int count, const GroupRounding& rounding, int8_t* data) {
  for (int i = 0; i < count; i += kLanes) {
    const __m256i integers = _mm256_cvtps_epi32(rounded(_mm256_loadu_ps(values + i), rounding));
    const __m128i shorts =
        _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(data + i), _mm_packs_epi16(shorts, shorts));
  }
}

void round_f8(const float* values, int count, uint8_t* out) {
  round_to<E4M3>(values, count, out);
}

void round_e5m2(const float* values, int count, uint8_t* out) {
  round_to<E5M2>(values, count, out);
}

}  // namespace quire::ops::avx2
