#include <immintrin.h>

#include "ops/cpu/peak_loops.h"

namespace quire::ops::avx512vnni {

double peak_i8(int64_t steps, float* sink) {
  constexpr int kSums = 16;  // two a cycle for a latency of 5 cycles
  __m512i sums[kSums];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  const __m512i x = _mm512_castps_si512(_mm512_set1_ps(*sink + 0.5f));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    // As in group_linear_avx512vnni.cc: GCC 12 copies the sums around the intrinsic.
    for (int i = 0; i < kSums; ++i) asm("vpdpbusd %1, %1, %0" : "+v"(sums[i]) : "v"(x));
  }
  __m512i total = sums[0];
  for (int i = 1; i < kSums; ++i) total = _mm512_add_epi32(total, sums[i]);
  *sink = static_cast<float>(_mm512_reduce_add_epi32(total) & 1);
  return static_cast<double>(steps) * kSums * 64 * 2;
}

}  // namespace quire::ops::avx512vnni
