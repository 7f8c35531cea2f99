#include "simulated_gpu/elements.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/watched_memory.h"
#include "quire/error.h"
#include "simulated_gpu/convert.h"

namespace quire::simulated {

void check_dtype(std::string_view kernel, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return;
  throw Error(fmt::format("The simulated GPU has no {} in {}.", kernel, name_of(dtype)));
}

namespace {

template <typename Watch>
void read_watched(DType dtype, const void* array, int64_t first, std::span<float> values,
                  const Watch& watch) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto count = static_cast<int64_t>(values.size());
  const std::byte* const from = static_cast<const std::byte*>(array) + first * size;
  watch(from, count * size);
  convert_to_floats(dtype, from, count, values.data());
}

}  // namespace

// The thread sanitizer is shown device memory; `values` are of the kernel that runs.
void read(DType dtype, const void* array, int64_t first, std::span<float> values) {
  read_watched(dtype, array, first, values,
               [](const void* from, int64_t bytes) { watch_reads(from, bytes); });
}

void read_weights(DType dtype, const void* array, int64_t first, std::span<float> values) {
  read_watched(dtype, array, first, values,
               [](const void* from, int64_t bytes) { watch_weights(from, bytes); });
}

std::vector<float> read(DType dtype, const void* array, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  read(dtype, array, first, values);
  return values;
}

void write(DType dtype, void* array, int64_t first, std::span<const float> values) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  std::byte* const to = static_cast<std::byte*>(array) + first * size;
  const auto count = static_cast<int64_t>(values.size());
  watch_writes(to, count * size);
  convert_from_floats(dtype, values.data(), count, to);
}

}  // namespace quire::simulated
