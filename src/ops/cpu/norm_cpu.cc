#include <cmath>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {

void rms_norm(const float* x, float* residual, const float* weight, float eps, int64_t n,
              float* out) {
  const float* in = x;
  if (residual != nullptr) {
    for (int64_t i = 0; i < n; ++i) residual[i] += x[i];
    in = residual;
  }
  // Several short sums are more exact than a long one.
  constexpr int kSums = 16;
  float sums[kSums] = {};
  for (int64_t i = 0; i < n; ++i) sums[i % kSums] += in[i] * in[i];
  float sum = 0.0f;
  for (float part : sums) sum += part;
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] * scale * weight[i];
}

}  // namespace quire::ops::scalar
