#include "simulated_gpu/convert.h"

#include <algorithm>

#include "base/check.h"
#include "ops/group_tile_rows.h"

namespace quire::simulated {
namespace {

// Calls `use` with a value of the type in which elements of `dtype` are stored.
template <typename Use>
void with_stored_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kFloat32:
      return use(float());
    case DType::kBFloat16:
      return use(BFloat16());
    case DType::kFloat8E4M3:
      return use(Float8E4M3());
    case DType::kFloat8E5M2:
      return use(Float8E5M2());
    default:
      check(false, "the simulated GPU has arrays of float32, bfloat16 and fp8");
  }
}

}  // namespace

void convert_to_floats(DType dtype, const void* from, int64_t count, float* values) {
  with_stored_type(dtype, [&](auto stored) {
    const auto* elements = static_cast<const decltype(stored)*>(from);
    std::transform(elements, elements + count, values,
                   [](auto element) { return static_cast<float>(element); });
  });
}

void convert_tile_row(const ops::GroupTiles& layout, int64_t row, const std::byte* tiles,
                      float* values) {
  ops::load_tile_row(layout, row, tiles, values);
}

void convert_from_floats(DType dtype, const float* values, int64_t count, void* to) {
  with_stored_type(dtype, [&](auto stored) {
    using Stored = decltype(stored);
    std::transform(values, values + count, static_cast<Stored*>(to),
                   [](float value) { return Stored(value); });
  });
}

}  // namespace quire::simulated
