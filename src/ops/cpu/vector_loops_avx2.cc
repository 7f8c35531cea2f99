#include "ops/cpu/vector_loops.h"

#include <immintrin.h>

#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {
namespace {

constexpr int kLanes = 8;

// The first `count` lanes, 0 to 8.
__m256i first_lanes(int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

float sum_of_lanes(__m256 lanes) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}

}  // namespace

float dot(const float* a, const float* b, int64_t count) {
  constexpr int kRegisters = kDotLanes / kLanes;
  __m256 sums[kRegisters];
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + kDotLanes <= count; i += kDotLanes) {
    for (int r = 0; r < kRegisters; ++r) {
      const int64_t at = i + r * kLanes;
      sums[r] = _mm256_fmadd_ps(_mm256_loadu_ps(a + at), _mm256_loadu_ps(b + at), sums[r]);
    }
  }
  for (int r = 0; i < count; ++r, i += kLanes) {
    const __m256i mask = first_lanes(count - i < kLanes ? count - i : kLanes);
    const __m256 products =
        _mm256_fmadd_ps(_mm256_maskload_ps(a + i, mask), _mm256_maskload_ps(b + i, mask), sums[r]);
    sums[r] = _mm256_blendv_ps(sums[r], products, _mm256_castsi256_ps(mask));
  }
  return sum_of_lanes(
      _mm256_add_ps(_mm256_add_ps(sums[0], sums[2]), _mm256_add_ps(sums[1], sums[3])));
}

void add_scaled(float factor, const float* from, int64_t count, float* to) {
  const __m256 factors = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(to + i,
                     _mm256_fmadd_ps(factors, _mm256_loadu_ps(from + i), _mm256_loadu_ps(to + i)));
  }
  if (i == count) return;
  const __m256i mask = first_lanes(count - i);
  _mm256_maskstore_ps(to + i, mask,
                      _mm256_fmadd_ps(factors, _mm256_maskload_ps(from + i, mask),
                                      _mm256_maskload_ps(to + i, mask)));
}

}  // namespace quire::ops::avx2
