#include <immintrin.h>

#include "ops/cpu/exp_avx2.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx2 {

void rms_norm(const float* x, float* residual, const float* weight, float eps, int64_t n,
              float* out) {
  const float* in = residual != nullptr ? residual : x;
  __m256 sums = _mm256_setzero_ps();
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i lanes = lanes_between(0, n - i);
    __m256 value = _mm256_maskload_ps(x + i, lanes);
    if (residual != nullptr) {
      value = _mm256_add_ps(value, _mm256_maskload_ps(residual + i, lanes));
      _mm256_maskstore_ps(residual + i, lanes, value);
    }
    sums = _mm256_fmadd_ps(value, value, sums);
  }
  const float mean = sum_of(sums) / static_cast<float>(n);
  const float inverse = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
  const __m256 scale = _mm256_set1_ps(inverse);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i lanes = lanes_between(0, n - i);
    const __m256 value = _mm256_mul_ps(_mm256_maskload_ps(in + i, lanes), scale);
    _mm256_maskstore_ps(out + i, lanes,
                        _mm256_mul_ps(value, _mm256_maskload_ps(weight + i, lanes)));
  }
}

void silu_and_mul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i lanes = lanes_between(0, n - i);
    const __m256 x = _mm256_maskload_ps(gate + i, lanes);
    const __m256 negated = _mm256_sub_ps(_mm256_setzero_ps(), x);
    const __m256 silu = _mm256_div_ps(x, _mm256_add_ps(one, exp_ps(negated)));
    _mm256_maskstore_ps(out + i, lanes, _mm256_mul_ps(silu, _mm256_maskload_ps(up + i, lanes)));
  }
}

void norm_rope(const HeadTask& head) {
  float* x = head.x;
  if (head.norm != nullptr) rms_norm(x, nullptr, head.norm, head.eps, head.head_dim, x);
  const int half = head.rotary_dim / 2;
  for (int i = 0; i < half; i += 8) {
    const __m256i lanes = lanes_between(0, half - i);
    const __m256 low = _mm256_maskload_ps(x + i, lanes);
    const __m256 high = _mm256_maskload_ps(x + half + i, lanes);
    const __m256 cosine = _mm256_maskload_ps(head.cos_sin + i, lanes);
    const __m256 sine = _mm256_maskload_ps(head.cos_sin + half + i, lanes);
    _mm256_maskstore_ps(x + i, lanes, _mm256_fmsub_ps(low, cosine, _mm256_mul_ps(high, sine)));
    _mm256_maskstore_ps(x + half + i, lanes,
                        _mm256_fmadd_ps(high, cosine, _mm256_mul_ps(low, sine)));
  }
}

}  // namespace quire::ops::avx2
