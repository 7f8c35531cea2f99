#include "ops/cpu/peak_loops.h"

namespace quire::ops::scalar {

double peak_f32(int64_t steps, float* sink) {
  // What the compiler makes of a loop over independent sums on plain x86-64.
  constexpr int kSums = 32;
  float sums[kSums] = {};
  const float x = *sink + 0.5f;
  for (int64_t step = 0; step < steps; ++step) {
    for (float& sum : sums) sum = sum * x + 1.0f;
  }
  for (float sum : sums) *sink += sum;
  return static_cast<double>(steps) * kSums * 2;
}

}  // namespace quire::ops::scalar
