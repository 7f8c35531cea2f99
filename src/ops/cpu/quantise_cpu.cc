// What rounding groups of a weight to integers is made of, without special instructions;
// quantise_avx2.cc gives the same bits.
#include <cmath>

#include "core/dtype.h"
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

float rounded(float value, const GroupRounding& rounding) {
  const float integer = std::nearbyint(std::fma(value, rounding.inverse, rounding.shift));
  return integer < rounding.low ? rounding.low : integer > rounding.high ? rounding.high : integer;
}

}  // namespace

void sum_group(const float* values, int count, GroupSums* sums) {
  float sum[kSumLanes] = {}, squares[kSumLanes] = {};
  sums->low = values[0];
  sums->high = values[0];
  for (int i = 0; i < count; ++i) {
    if (values[i] < sums->low) sums->low = values[i];
    if (values[i] > sums->high) sums->high = values[i];
    sum[i % kSumLanes] += values[i];
    squares[i % kSumLanes] = std::fma(values[i], values[i], squares[i % kSumLanes]);
  }
  sums->sum = sum_of_lanes(sum);
  sums->squares = sum_of_lanes(squares);
}

void fit_group(const float* values, int count, const GroupRounding& rounding, GroupFit* fit) {
  float integers[kSumLanes] = {}, squares[kSumLanes] = {}, products[kSumLanes] = {};
  for (int i = 0; i < count; ++i) {
    const float integer = rounded(values[i], rounding);
    integers[i % kSumLanes] += integer;
    squares[i % kSumLanes] = std::fma(integer, integer, squares[i % kSumLanes]);
    products[i % kSumLanes] = std::fma(values[i], integer, products[i % kSumLanes]);
  }
  fit->integers = sum_of_lanes(integers);
  fit->squares = sum_of_lanes(squares);
  fit->products = sum_of_lanes(products);
}

void round_group(const float* values, int count, const GroupRounding& rounding, int8_t* data) {
  for (int i = 0; i < count; ++i) data[i] = static_cast<int8_t>(rounded(values[i], rounding));
}

void round_f8(const float* values, int count, uint8_t* out) {
  for (int i = 0; i < count; ++i) out[i] = Float8E4M3(values[i]).bits;
}

void round_e5m2(const float* values, int count, uint8_t* out) {
  for (int i = 0; i < count; ++i) out[i] = Float8E5M2(values[i]).bits;
}

}  // namespace quire::ops::scalar
