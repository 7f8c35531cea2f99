#pragma once
// exp for AVX2, and masks. Only for files compiled for that instruction set (see
// ops/cpu/kernels.h): everything here is local to the file that includes it.
#include <immintrin.h>

namespace quire::ops::avx2 {
namespace {

// exp(x) to about 1 ulp, as in exp_avx512.h. Below -87 the result is 0 (it would be subnormal), so
// -inf gives 0.
[[maybe_unused]] inline __m256 exp_ps(__m256 x) {
  const __m256 bounded = _mm256_min_ps(_mm256_set1_ps(88.7f), x);  // NaN in x stays
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), bounded);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  // 2^n in two factors: n reaches 128.
  const __m256i exponent = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(exponent, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 factor1 = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 factor2 = _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(exponent, half), bias), 23));
  const __m256 result = _mm256_mul_ps(_mm256_mul_ps(p, factor1), factor2);
  return _mm256_and_ps(result, _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_NLT_UQ));
}

// All bits set in lanes [begin, end) of 8.
[[maybe_unused]] inline __m256i lanes_between(long begin, long end) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int low = begin < 0 ? 0 : begin > 8 ? 8 : static_cast<int>(begin);
  const int high = end < 0 ? 0 : end > 8 ? 8 : static_cast<int>(end);
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), index),
                             _mm256_cmpgt_epi32(_mm256_set1_epi32(high), index));
}

// The sum of the lanes, always in the same order.
[[maybe_unused]] inline float sum_of(__m256 x) {
  float lanes[8];
  _mm256_storeu_ps(lanes, x);
  for (int width = 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace
}  // namespace quire::ops::avx2
