#include "simulated_gpu/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "quire/error.h"

namespace quire::simulated {

void check_dtype(std::string_view kernel, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return;
  throw Error(fmt::format("The simulated GPU has no {} in {}.", kernel, name_of(dtype)));
}

namespace {

// Float8 e4m3: a sign, four bits of exponent with bias 7, three of mantissa; no infinities.
float float_of_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 0xf;
  const int mantissa = bits & 7;
  if (exponent == 0xf && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

// The nearest, of two as near the one with an even mantissa; the largest for what is beyond it.
uint8_t e4m3_of_float(float value) {
  constexpr uint8_t kNan = 0x7f;
  if (std::isnan(value)) return kNan;
  uint8_t nearest = 0;
  for (uint8_t bits = 1; bits < kNan; ++bits) {
    const float distance = std::abs(float_of_e4m3(bits) - std::abs(value));
    const float least = std::abs(float_of_e4m3(nearest) - std::abs(value));
    if (distance < least || (distance == least && bits % 2 == 0)) nearest = bits;
  }
  return std::signbit(value) ? nearest | 0x80 : nearest;
}

// Calls `use` with a type for `dtype`, in which elements are stored, and how to convert them.
template <typename Use>
void with_elements(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat32:
      return use(
          float(), [](float stored) { return stored; }, [](float value) { return value; });
    case DType::kBFloat16:
      return use(
          BFloat16(), [](BFloat16 stored) { return static_cast<float>(stored); },
          [](float value) { return BFloat16(value); });
    case DType::kFloat8E4M3:
      return use(uint8_t(), float_of_e4m3, e4m3_of_float);
    default:
      check(false, "the simulated GPU has arrays of float32, bfloat16 and fp8");
  }
}

}  // namespace

std::vector<float> read(DType dtype, const void* array, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  with_elements(dtype, [&](auto stored, auto to_float, auto) {
    const auto* from = static_cast<const decltype(stored)*>(array) + first;
    std::transform(from, from + count, values.begin(), to_float);
  });
  return values;
}

void write(DType dtype, void* array, int64_t first, std::span<const float> values) {
  with_elements(dtype, [&](auto stored, auto, auto from_float) {
    auto* to = static_cast<decltype(stored)*>(array) + first;
    std::transform(values.begin(), values.end(), to, from_float);
  });
}

}  // namespace quire::simulated
