// Rounds groups of a weight to integers without special instructions; quantise_avx2.cc gives the
// same bits.
#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

// Sums are of 8 lanes, and these in the order in which AVX2 adds a register up.
constexpr int kSumLanes = 8;

float sum_of_lanes(const float* lanes) {
  float four[4];
  for (int i = 0; i < 4; ++i) four[i] = lanes[i] + lanes[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

float rounded(float value, float inverse, float low, float high) {
  const float integer = std::nearbyint(value * inverse);
  return integer < low ? low : integer > high ? high : integer;
}

// What integers x * inverse, rounded and clipped, have in common with x.
struct Fit {
  float products = 0;  // sum of value * integer
  float squares = 0;   // sum of integer^2
};

Fit fit_of(const QuantiseGroup& group, float inverse) {
  float products[kSumLanes] = {}, squares[kSumLanes] = {};
  for (int i = 0; i < group.count; ++i) {
    const float integer = rounded(group.values[i], inverse, group.low, group.high);
    products[i % kSumLanes] = std::fma(group.values[i], integer, products[i % kSumLanes]);
    squares[i % kSumLanes] = std::fma(integer, integer, squares[i % kSumLanes]);
  }
  return {sum_of_lanes(products), sum_of_lanes(squares)};
}

}  // namespace

float quantise_group(const QuantiseGroup& group, int8_t* data) {
  float largest = 0;
  bool is_finite = true;
  for (int i = 0; i < group.count; ++i) {
    is_finite = is_finite && std::isfinite(group.values[i]);
    if (std::abs(group.values[i]) > std::abs(largest) ||
        (group.values[i] > 0 && group.values[i] == -largest)) {
      largest = group.values[i];
    }
  }
  std::fill_n(data, group.count, int8_t{0});
  if (!is_finite) return std::nanf("");
  float best_inverse = 0, best_scale = 0, best_gain = 0;
  for (int i = 0; i < group.candidates; ++i) {
    const float inverse = (group.first_extreme + static_cast<float>(i) * group.step) / largest;
    if (!std::isfinite(inverse)) return 0.0f;
    const Fit fit = fit_of(group, inverse);
    const float gain = fit.products * (fit.products / fit.squares);
    if (gain <= best_gain) continue;
    best_gain = gain;
    best_inverse = inverse;
    best_scale = fit.products / fit.squares;
  }
  for (int i = 0; i < group.count; ++i) {
    data[i] = static_cast<int8_t>(rounded(group.values[i], best_inverse, group.low, group.high));
  }
  return best_scale;
}

}  // namespace quire::ops::scalar
