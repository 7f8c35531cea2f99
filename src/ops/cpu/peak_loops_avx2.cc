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

}  // namespace quire::ops::avx2
