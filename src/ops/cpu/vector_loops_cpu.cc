// vector_loops.h without special instructions; vector_loops_avx2.cc gives the same bits.
#include "ops/cpu/vector_loops.h"

#include <cmath>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {

float dot(const float* a, const float* b, int64_t count) {
  float sums[kDotLanes] = {};
  for (int64_t i = 0; i < count; ++i) {
    sums[i % kDotLanes] = std::fma(a[i], b[i], sums[i % kDotLanes]);
  }
  // As four registers of eight are added up.
  for (int half = kDotLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

void add_scaled(float factor, const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = std::fma(factor, from[i], to[i]);
}

}  // namespace quire::ops::scalar
