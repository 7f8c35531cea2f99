#include "simulated_gpu/products.h"

#include <immintrin.h>

#define QUIRE_AVX2 __attribute__((target("avx2")))

namespace quire::simulated {
namespace {

constexpr int64_t kLanes = 16;

float plain_dot(const float* a, const float* b, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// The 16 partial sums of one dot product. No FMA: it rounds once where the plain loop rounds twice.
struct Lanes {
  QUIRE_AVX2 void add(__m256 a_low, __m256 a_high, const float* b) {
    low = _mm256_add_ps(low, _mm256_mul_ps(a_low, _mm256_loadu_ps(b)));
    high = _mm256_add_ps(high, _mm256_mul_ps(a_high, _mm256_loadu_ps(b + 8)));
  }

  __m256 low;
  __m256 high;
};

// Adds the first lane of all four to their sums, then the second, and so on.
QUIRE_AVX2 __m128 add_in_order(__m128 sums, __m128 p, __m128 q, __m128 r, __m128 s) {
  _MM_TRANSPOSE4_PS(p, q, r, s);
  return _mm_add_ps(_mm_add_ps(_mm_add_ps(_mm_add_ps(sums, p), q), r), s);
}

QUIRE_AVX2 __m128 add_in_order(__m128 sums, __m256 p, __m256 q, __m256 r, __m256 s) {
  sums = add_in_order(sums, _mm256_castps256_ps128(p), _mm256_castps256_ps128(q),
                      _mm256_castps256_ps128(r), _mm256_castps256_ps128(s));
  return add_in_order(sums, _mm256_extractf128_ps(p, 1), _mm256_extractf128_ps(q, 1),
                      _mm256_extractf128_ps(r, 1), _mm256_extractf128_ps(s, 1));
}

QUIRE_AVX2 std::array<float, kNumDots> avx2_dots(const float* a,
                                                 const std::array<const float*, kNumDots>& b,
                                                 int64_t n) {
  const __m256 zero = _mm256_setzero_ps();
  Lanes p{zero, zero};
  Lanes q{zero, zero};
  Lanes r{zero, zero};
  Lanes s{zero, zero};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 low = _mm256_loadu_ps(a + i);
    const __m256 high = _mm256_loadu_ps(a + i + 8);
    p.add(low, high, b[0] + i);
    q.add(low, high, b[1] + i);
    r.add(low, high, b[2] + i);
    s.add(low, high, b[3] + i);
  }
  __m128 ordered = add_in_order(_mm_setzero_ps(), p.low, q.low, r.low, s.low);
  ordered = add_in_order(ordered, p.high, q.high, r.high, s.high);
  std::array<float, kNumDots> sums;
  _mm_storeu_ps(sums.data(), ordered);
  for (; i < n; ++i) {
    for (size_t k = 0; k < kNumDots; ++k) sums[k] += a[i] * b[k][i];
  }
  return sums;
}

}  // namespace

std::array<float, kNumDots> dots(const float* a, const std::array<const float*, kNumDots>& b,
                                 int64_t n) {
  if (__builtin_cpu_supports("avx2")) return avx2_dots(a, b, n);
  std::array<float, kNumDots> sums;
  for (size_t k = 0; k < kNumDots; ++k) sums[k] = plain_dot(a, b[k], n);
  return sums;
}

void add_scaled(float factor, const float* x, int64_t n, float* sums) {
  for (int64_t i = 0; i < n; ++i) sums[i] += factor * x[i];
}

}  // namespace quire::simulated
