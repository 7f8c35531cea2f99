#include <immintrin.h>

#include "ops/cpu/exp_avx512.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::avx512 {
namespace {

float inverse_sqrt(float x) {
  return 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x)));
}

}  // namespace

void rms_norm(const float* x, float* residual, const float* weight, float eps, int64_t n,
              float* out) {
  const float* in = x;
  __m512 sums = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    __m512 value = _mm512_maskz_loadu_ps(lanes, x + i);
    if (residual != nullptr) {
      value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, residual + i));
      _mm512_mask_storeu_ps(residual + i, lanes, value);
    }
    sums = _mm512_fmadd_ps(value, value, sums);
  }
  if (residual != nullptr) in = residual;
  const __m512 scale = _mm512_set1_ps(inverse_sqrt(sum_of(sums) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, in + i), scale);
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(value, _mm512_maskz_loadu_ps(lanes, weight + i)));
  }
}

void silu_and_mul(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 lanes = first_lanes(n - i);
    const __m512 x = _mm512_maskz_loadu_ps(lanes, gate + i);
    const __m512 negated = _mm512_sub_ps(_mm512_setzero_ps(), x);
    const __m512 silu = _mm512_div_ps(x, _mm512_add_ps(one, exp_ps(negated)));
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

void norm_rope(const HeadTask& head) {
  float* x = head.x;
  if (head.norm != nullptr) rms_norm(x, nullptr, head.norm, head.eps, head.head_dim, x);
  const int half = head.rotary_dim / 2;
  for (int i = 0; i < half; i += 16) {
    const __mmask16 lanes = first_lanes(half - i);
    const __m512 low = _mm512_maskz_loadu_ps(lanes, x + i);
    const __m512 high = _mm512_maskz_loadu_ps(lanes, x + half + i);
    const __m512 cosine = _mm512_maskz_loadu_ps(lanes, head.cos_sin + i);
    const __m512 sine = _mm512_maskz_loadu_ps(lanes, head.cos_sin + half + i);
    _mm512_mask_storeu_ps(x + i, lanes, _mm512_fmsub_ps(low, cosine, _mm512_mul_ps(high, sine)));
    _mm512_mask_storeu_ps(x + half + i, lanes,
                          _mm512_fmadd_ps(high, cosine, _mm512_mul_ps(low, sine)));
  }
}

}  // namespace quire::ops::avx512
