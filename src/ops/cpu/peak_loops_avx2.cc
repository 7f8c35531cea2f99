#include <immintrin.h>

#include "ops/cpu/peak_loops.h"

namespace quire::ops::avx2 {

double peak_f32(int64_t steps, float* sink) {
  constexpr int kSums = 12;  // two a cycle for a latency of 4 to 5 cycles
  __m256 sums[kSums];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  const __m256 x = _mm256_set1_ps(*sink + 0.5f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sums[i] = _mm256_fmadd_ps(sums[i], x, x);
  }
  __m256 total = sums[0];
  for (int i = 1; i < kSums; ++i) total = _mm256_add_ps(total, sums[i]);
  *sink = _mm256_cvtss_f32(total);
  return static_cast<double>(steps) * kSums * 8 * 2;
}

double peak_i8(int64_t steps, float* sink) {
  constexpr int kSums = 12;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kSums];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_castps_si256(_mm256_set1_ps(*sink + 0.5f));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      // Products that depend on the sum, or the compiler would multiply once for all steps.
      const __m256i pairs = _mm256_maddubs_epi16(x, sums[i]);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  __m256i total = sums[0];
  for (int i = 1; i < kSums; ++i) total = _mm256_add_epi32(total, sums[i]);
  *sink = static_cast<float>(_mm256_cvtsi256_si32(total) & 1);
  return static_cast<double>(steps) * kSums * 32 * 2;
}

}  // namespace quire::ops::avx2
