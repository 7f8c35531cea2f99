#include "simulated_gpu/elements.h"

#include <fmt/format.h>

#include <algorithm>

#include "quire/error.h"

namespace quire::simulated {

void check_dtype(std::string_view kernel, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return;
  throw Error(fmt::format("The simulated GPU has no {} in {}.", kernel, name_of(dtype)));
}

std::vector<float> read(DType dtype, const void* array, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  if (dtype == DType::kFloat32) {
    std::copy_n(static_cast<const float*>(array) + first, count, values.begin());
  } else {
    std::transform(static_cast<const BFloat16*>(array) + first,
                   static_cast<const BFloat16*>(array) + first + count, values.begin(),
                   [](BFloat16 value) { return static_cast<float>(value); });
  }
  return values;
}

void write(DType dtype, void* array, int64_t first, std::span<const float> values) {
  if (dtype == DType::kFloat32) {
    std::copy(values.begin(), values.end(), static_cast<float*>(array) + first);
  } else {
    std::transform(values.begin(), values.end(), static_cast<BFloat16*>(array) + first,
                   [](float value) { return BFloat16(value); });
  }
}

}  // namespace quire::simulated
