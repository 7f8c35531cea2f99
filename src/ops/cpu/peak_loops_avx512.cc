#include <immintrin.h>

#include "ops/cpu/peak_loops.h"

namespace quire::ops::avx512 {
namespace {

constexpr int kSums = 16;  // two a cycle for a latency of 4 to 6 cycles

float sum_of(const __m512* sums) {
  float lanes[16];
  __m512 total = sums[0];
  for (int i = 1; i < kSums; ++i) total = _mm512_add_ps(total, sums[i]);
  _mm512_storeu_ps(lanes, total);
  float sum = 0.0f;
  for (float lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double peak_f32(int64_t steps, float* sink) {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 x = _mm512_set1_ps(*sink + 0.5f);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], x, x);
  }
  *sink = sum_of(sums);
  return static_cast<double>(steps) * kSums * 16 * 2;
}

double peak_bf16(int64_t steps, float* sink) {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512bh x = reinterpret_cast<__m512bh>(_mm512_set1_ps(*sink + 0.5f));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
  }
  *sink = sum_of(sums);
  return static_cast<double>(steps) * kSums * 32 * 2;
}

}  // namespace quire::ops::avx512
