#include "ops/cpu/quantise.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/cpu_features.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

// Rows that are rounded before they are packed: a line of a panel holds as many rows' integers.
constexpr int64_t kRowsAtOnce = 16;

// int8 is fine enough for its range to be used whole. Of int4 the value of the largest magnitude
// becomes anything from -6.5 to -9.5, which is clipped to -8, in steps of a quarter.
QuantiseGroup search_of(const GroupLayout& layout) {
  QuantiseGroup group = {};
  group.low = layout.four_bits ? -8.0f : -127.0f;
  group.high = layout.four_bits ? 7.0f : 127.0f;
  group.first_extreme = layout.four_bits ? -9.5f : -127.0f;
  group.step = 0.25f;
  group.candidates = layout.four_bits ? 13 : 1;
  return group;
}

template <typename T>
void to_floats(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

void row_to_floats(const Tensor& source, int64_t row, float* to) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return to_floats(source.row<float>(row), source.dim(1), to);
    case DType::kBFloat16:
      return to_floats(source.row<BFloat16>(row), source.dim(1), to);
    case DType::kFloat16:
      return to_floats(source.row<Float16>(row), source.dim(1), to);
    default:
      check(false, "a weight is rounded from float32, bfloat16 or float16");
  }
}

// The integers and scales of a few rows.
struct RoundedRows {
  std::vector<float> values;  // of one row, and zeros to fill its last group
  std::vector<int8_t> data;
  std::vector<float> scales;

  explicit RoundedRows(const GroupLayout& layout)
      : values(static_cast<size_t>(layout.groups * layout.group_size)),
        data(static_cast<size_t>(kRowsAtOnce * layout.k)),
        scales(static_cast<size_t>(kRowsAtOnce * layout.groups)) {}

  void round(const GroupLayout& layout, const Kernels& kernels, int64_t row) {
    QuantiseGroup group = search_of(layout);
    group.count = static_cast<int>(layout.group_size);
    for (int64_t i = 0; i < layout.groups; ++i) {
      int8_t rounded[kWholeRowGroup];
      group.values = values.data() + i * layout.group_size;
      scales[static_cast<size_t>(row * layout.groups + i)] = kernels.quantise_group(group, rounded);
      std::copy_n(rounded, layout.inputs_of(i),
                  data.begin() + row * layout.k + i * layout.group_size);
    }
  }
};

}  // namespace

void quantise_rows(const GroupLayout& layout, int64_t first_row, const Tensor& source,
                   std::byte* panels) {
  check(!layout.one_scale && !layout.has_offsets, "rows are rounded in groups, without offsets");
  const Kernels& kernels = kernels_for(best_isa());
  RoundedRows rows(layout);
  for (int64_t first = 0; first < source.dim(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, source.dim(0) - first);
    for (int64_t row = 0; row < count; ++row) {
      row_to_floats(source, first + row, rows.values.data());
      rows.round(layout, kernels, row);
    }
    const GroupedRows rounded = {
        .rows = count, .data = rows.data.data(), .scales = rows.scales.data()};
    pack_group_rows(layout, first_row + first, rounded, panels);
  }
}

}  // namespace quire::ops
