#pragma once
// exp for AVX-512. Only for files compiled for that instruction set (see ops/cpu/kernels.h):
// everything here is local to the file that includes it.
#include <immintrin.h>

namespace quire::ops::avx512 {
namespace {

// exp(x) to about 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor series of exp(r) to r^7 /
// 7! (the next term is below 2^-27), times 2^n. -inf gives 0.
[[maybe_unused]] inline __m512 exp_ps(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  const __m512 result = _mm512_scalef_ps(p, n);
  // Below the smallest number everything is 0; -inf would be NaN by way of inf - inf.
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-104.0f), _CMP_NLT_UQ), result);
}

// Lanes [0, n) of 16.
[[maybe_unused]] inline __mmask16 first_lanes(long n) {
  return n >= 16 ? __mmask16(0xffff) : n <= 0 ? __mmask16(0) : __mmask16((1u << n) - 1);
}

// The sum of the lanes, always in the same order.
[[maybe_unused]] inline float sum_of(__m512 x) {
  float lanes[16];
  _mm512_storeu_ps(lanes, x);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace
}  // namespace quire::ops::avx512
