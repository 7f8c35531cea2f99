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

}  // namespace quire::ops::avx2
