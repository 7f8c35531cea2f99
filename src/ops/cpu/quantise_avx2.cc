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

__m256 rounded(__m256 values, __m256 inverse, __m256 low, __m256 high) {
  const __m256 integers = _mm256_round_ps(_mm256_mul_ps(values, inverse),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_min_ps(_mm256_max_ps(integers, low), high);
}

// The value of the largest magnitude, the positive one of two; NaN where one is not finite.
float largest_of(const QuantiseGroup& group) {
  __m256i largest = _mm256_setzero_si256();
  __m256 positive = _mm256_setzero_ps();
  for (int i = 0; i < group.count; i += kLanes) {
    const __m256 values = _mm256_loadu_ps(group.values + i);
    largest = _mm256_max_epi32(
        largest, _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(0x7fffffff)));
    positive = _mm256_max_ps(positive, values);
  }
  int bits[kLanes];
  float values[kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bits), largest);
  _mm256_storeu_ps(values, positive);
  for (int i = 1; i < kLanes; ++i) {
    if (bits[i] > bits[0]) bits[0] = bits[i];
    if (values[i] > values[0]) values[0] = values[i];
  }
  if (bits[0] >= 0x7f800000) return __builtin_nanf("");
  const float magnitude = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits[0])));
  return values[0] == magnitude ? magnitude : -magnitude;
}

// What integers x * inverse, rounded and clipped, have in common with x.
struct Fit {
  float products;  // sum of value * integer
  float squares;   // sum of integer^2
};

Fit fit_of(const QuantiseGroup& group, float inverse) {
  __m256 products = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
  for (int i = 0; i < group.count; i += kLanes) {
    const __m256 values = _mm256_loadu_ps(group.values + i);
    const __m256 integers = rounded(values, _mm256_set1_ps(inverse), _mm256_set1_ps(group.low),
                                    _mm256_set1_ps(group.high));
    products = _mm256_fmadd_ps(values, integers, products);
    squares = _mm256_fmadd_ps(integers, integers, squares);
  }
  return {sum_of_lanes(products), sum_of_lanes(squares)};
}

void store_rounded(const QuantiseGroup& group, float inverse, int8_t* data) {
  for (int i = 0; i < group.count; i += kLanes) {
    const __m256i integers =
        _mm256_cvtps_epi32(rounded(_mm256_loadu_ps(group.values + i), _mm256_set1_ps(inverse),
                                   _mm256_set1_ps(group.low), _mm256_set1_ps(group.high)));
    const __m128i shorts =
        _mm_packs_epi32(_mm256_castsi256_si128(integers), _mm256_extracti128_si256(integers, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(data + i), _mm_packs_epi16(shorts, shorts));
  }
}

}  // namespace

float quantise_group(const QuantiseGroup& group, int8_t* data) {
  const float largest = largest_of(group);
  for (int i = 0; i < group.count; ++i) data[i] = 0;
  if (largest != largest) return largest;
  float best_inverse = 0, best_scale = 0, best_gain = 0;
  for (int i = 0; i < group.candidates; ++i) {
    // The steps are exact, so that a multiply-add rounds as a multiplication and an addition do.
    const float inverse = (group.first_extreme + static_cast<float>(i) * group.step) / largest;
    if (!(inverse <= 3.4028235e38f && inverse >= -3.4028235e38f)) return 0.0f;
    const Fit fit = fit_of(group, inverse);
    const float gain = fit.products * (fit.products / fit.squares);
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_inverse = inverse;
    best_scale = fit.products / fit.squares;
  }
  store_rounded(group, best_inverse, data);
  return best_scale;
}

}  // namespace quire::ops::avx2
