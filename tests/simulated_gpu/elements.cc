#include "simulated_gpu/elements.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "quire/error.h"

namespace quire::simulated {

void check_dtype(std::string_view kernel, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return;
  throw Error(fmt::format("The simulated GPU has no {} in {}.", kernel, name_of(dtype)));
}

namespace {

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
      return use(
          Float8E4M3(), [](Float8E4M3 stored) { return static_cast<float>(stored); },
          [](float value) { return Float8E4M3(value); });
    case DType::kFloat8E5M2:
      return use(
          Float8E5M2(), [](Float8E5M2 stored) { return static_cast<float>(stored); },
          [](float value) { return Float8E5M2(value); });
    default:
      check(false, "the simulated GPU has arrays of float32, bfloat16 and fp8");
  }
}

}  // namespace

void read(DType dtype, const void* array, int64_t first, std::span<float> values) {
  with_elements(dtype, [&](auto stored, auto to_float, auto) {
    const auto* from = static_cast<const decltype(stored)*>(array) + first;
    if constexpr (std::is_same_v<decltype(stored), float>) {
      std::copy(from, from + values.size(), values.begin());
    } else {
      std::transform(from, from + values.size(), values.begin(), to_float);
    }
  });
}

std::vector<float> read(DType dtype, const void* array, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  read(dtype, array, first, values);
  return values;
}

void write(DType dtype, void* array, int64_t first, std::span<const float> values) {
  with_elements(dtype, [&](auto stored, auto, auto from_float) {
    auto* to = static_cast<decltype(stored)*>(array) + first;
    std::transform(values.begin(), values.end(), to, from_float);
  });
}

}  // namespace quire::simulated
