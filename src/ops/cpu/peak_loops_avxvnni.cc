#include <immintrin.h>

#include "ops/cpu/peak_loops.h"

namespace quire::ops::avxvnni {

double peak_i8(int64_t steps, float* sink) {
  constexpr int kSums = 12;  // two a cycle for a latency of 5 cycles
  __m256i sums[kSums];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  const __m256i x = _mm256_castps_si256(_mm256_set1_ps(*sink + 0.5f));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    // As in group_linear_avxvnni.cc: GCC 12 copies the sums around the intrinsic.
    for (int i = 0; i < kSums; ++i) asm("%{vex%} vpdpbusd %1, %1, %0" : "+x"(sums[i]) : "x"(x));
  }
  __m256i total = sums[0];
  for (int i = 1; i < kSums; ++i) total = _mm256_add_epi32(total, sums[i]);
  *sink = static_cast<float>(_mm256_cvtsi256_si32(total) & 1);
  return static_cast<double>(steps) * kSums * 32 * 2;
}

}  // namespace quire::ops::avxvnni
