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

double peak_i8(int64_t steps, float* sink) {
  constexpr int kSums = 32;
  int32_t sums[kSums] = {};
  const auto x = static_cast<int32_t>(*sink) + 3;
  for (int64_t step = 0; step < steps; ++step) {
    for (int32_t& sum : sums) sum = static_cast<int8_t>(sum) * x + 1;
  }
  for (int32_t sum : sums) *sink += static_cast<float>(sum & 1);
  return static_cast<double>(steps) * kSums * 2;
}

}  // namespace quire::ops::scalar
