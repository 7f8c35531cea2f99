#include "simulated_gpu/elements.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/watched_memory.h"
#include "quire/error.h"
#include "simulated_gpu/convert.h"

#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define QUIRE_ADDRESS_SANITIZER 1
#include <sanitizer/asan_interface.h>
#endif

namespace quire::simulated {

void check_dtype(std::string_view kernel, DType dtype) {
  if (dtype == DType::kFloat32 || dtype == DType::kBFloat16) return;
  throw Error(fmt::format("The simulated GPU has no {} in {}.", kernel, name_of(dtype)));
}

namespace {

// Shows the address sanitizer memory that is read or written by code compiled without it.
void watch_address([[maybe_unused]] const std::byte* memory, [[maybe_unused]] int64_t bytes) {
#ifdef QUIRE_ADDRESS_SANITIZER
  const auto* bad = static_cast<const volatile std::byte*>(
      __asan_region_is_poisoned(const_cast<std::byte*>(memory), static_cast<size_t>(bytes)));
  if (bad != nullptr) static_cast<void>(*bad);  // which it reports
#endif
}

void check_alignment(const void* memory, int64_t size) {
  check(reinterpret_cast<uintptr_t>(memory) % static_cast<uintptr_t>(size) == 0,
        "an array is aligned to its elements");
}

template <typename Watch>
void read_watched(DType dtype, const void* array, int64_t first, std::span<float> values,
                  const Watch& watch) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const auto count = static_cast<int64_t>(values.size());
  const std::byte* const from = static_cast<const std::byte*>(array) + first * size;
  check_alignment(from, size);
  watch_address(from, count * size);
  watch(from, count * size);
  convert_to_floats(dtype, from, count, values.data());
}

}  // namespace

// Sanitizers are shown device memory; `values` are of the kernel that runs.
void read(DType dtype, const void* array, int64_t first, std::span<float> values) {
  read_watched(dtype, array, first, values,
               [](const void* from, int64_t bytes) { watch_reads(from, bytes); });
}

void read_weights(DType dtype, const void* array, int64_t first, std::span<float> values) {
  read_watched(dtype, array, first, values,
               [](const void* from, int64_t bytes) { watch_weights(from, bytes); });
}

void read_tile_row(const ops::GroupTiles& layout, int64_t row, const void* tiles,
                   std::span<float> values) {
  check(std::ssize(values) == layout.k, "a row has all inputs");
  const int64_t panel_bytes = layout.blocks() * layout.block_bytes();
  const std::byte* const panel =
      static_cast<const std::byte*>(tiles) + row / ops::kTileOutputs * panel_bytes;
  check_alignment(panel, sizeof(float));
  watch_address(panel, panel_bytes);
  watch_weights(panel, panel_bytes);
  convert_tile_row(layout, row, static_cast<const std::byte*>(tiles), values.data());
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
  check_alignment(to, size);
  watch_address(to, count * size);
  watch_writes(to, count * size);
  convert_from_floats(dtype, values.data(), count, to);
}

}  // namespace quire::simulated
