#include "ops/cpu/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/cpu_features.h"
#include "core/dtype.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

// Rows that are rounded before they are packed: a line of a panel holds as many rows' integers.
constexpr int64_t kRowsAtOnce = 16;

struct Rounded {
  float scale = 0;
  float offset = 0;
};

float as_stored(const GroupLayout& layout, double value) {
  const auto rounded = static_cast<float>(value);
  return layout.scale_bytes == 2 ? static_cast<float>(BFloat16(rounded)) : rounded;
}

// Rounds with a scale and an offset as they are stored.
Rounded round_with(const Kernels& kernels, const float* values, int count, Rounded chosen,
                   GroupRounding range, int8_t* data) {
  range.inverse = 1.0f / chosen.scale;
  range.shift = -chosen.offset / chosen.scale;
  if (std::isfinite(range.inverse) && std::isfinite(range.shift)) {
    kernels.round_group(values, count, range, data);
  } else {
    chosen.scale = 0;
    std::fill_n(data, count, int8_t{0});
  }
  return chosen;
}

Rounded round_to_int8(const GroupLayout& layout, const Kernels& kernels, const float* values,
                      const GroupSums& sums, int8_t* data) {
  const float largest = std::max(-sums.low, sums.high);
  const Rounded chosen = {.scale = as_stored(layout, largest / 127.0f), .offset = 0};
  return round_with(kernels, values, static_cast<int>(layout.group_size), chosen,
                    {.inverse = 0, .shift = 0, .low = -127, .high = 127}, data);
}

// The scale and offset of the least squared error for integers, and that error.
struct LeastSquares {
  double scale = 0;
  double offset = 0;
  double error = 0;

  LeastSquares(const GroupSums& sums, const GroupFit& fit, double count) {
    const double spread =
        count * fit.squares - static_cast<double>(fit.integers) * static_cast<double>(fit.integers);
    scale = (count * fit.products - static_cast<double>(fit.integers) * sums.sum) / spread;
    offset = (sums.sum - scale * fit.integers) / count;
    error = sums.squares - scale * fit.products - offset * sums.sum;
  }
};

Rounded round_to_int4(const GroupLayout& layout, const Kernels& kernels, const float* values,
                      const GroupSums& sums, int8_t* data) {
  constexpr float kSteps = 15;
  const auto count = static_cast<int>(layout.group_size);
  GroupRounding range = {.inverse = 0, .shift = 0, .low = -8, .high = 7};
  Rounded best = {.scale = 0, .offset = as_stored(layout, sums.low)};
  double least = std::numeric_limits<double>::infinity();
  const float half_step = (sums.high - sums.low) / (2 * kSteps);
  for (const float below : {0.0f, half_step}) {
    for (const float above : {0.0f, half_step}) {
      const float low = sums.low + below;
      range.inverse = kSteps / (sums.high - above - low);
      range.shift = range.low - low * range.inverse;
      if (!std::isfinite(range.inverse) || !std::isfinite(range.shift)) continue;
      GroupFit fit;
      kernels.fit_group(values, count, range, &fit);
      const LeastSquares found(sums, fit, count);
      if (found.error >= least) continue;
      least = found.error;
      best.scale = as_stored(layout, found.scale);
      best.offset =
          as_stored(layout, (sums.sum - static_cast<double>(best.scale) * fit.integers) / count);
    }
  }
  return round_with(kernels, values, count, best, range, data);
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

// The integers, scales and offsets of a few rows.
struct RoundedRows {
  std::vector<float> values;  // of one row, and zeros to fill its last group
  std::vector<int8_t> data;
  std::vector<float> scales;
  std::vector<float> offsets;

  explicit RoundedRows(const GroupLayout& layout)
      : values(static_cast<size_t>(layout.groups * layout.group_size)),
        data(static_cast<size_t>(kRowsAtOnce * layout.k)),
        scales(static_cast<size_t>(kRowsAtOnce * layout.groups)),
        offsets(scales.size()) {}

  void round(const GroupLayout& layout, const Kernels& kernels, int64_t row) {
    for (int64_t i = 0; i < layout.groups; ++i) {
      int8_t integers[kWholeRowGroup] = {};
      const Rounded rounded =
          round_group(layout, kernels, values.data() + i * layout.group_size, integers);
      const auto at = static_cast<size_t>(row * layout.groups + i);
      scales[at] = rounded.scale;
      offsets[at] = rounded.offset;
      std::copy_n(integers, layout.inputs_of(i),
                  data.begin() + row * layout.k + i * layout.group_size);
    }
  }

  static Rounded round_group(const GroupLayout& layout, const Kernels& kernels, const float* values,
                             int8_t* integers) {
    GroupSums sums;
    kernels.sum_group(values, static_cast<int>(layout.group_size), &sums);
    if (!std::isfinite(sums.squares)) return {.scale = std::nanf(""), .offset = 0};
    return layout.four_bits ? round_to_int4(layout, kernels, values, sums, integers)
                            : round_to_int8(layout, kernels, values, sums, integers);
  }
};

constexpr float kLargestFloat8 = 448.0f;
// Values that Kernels::round_f8 takes at a time.
constexpr int64_t kFloat8Step = 8;

// Rounds a row of `count` values, which are scaled in place and followed by room up to a multiple
// of kFloat8Step; returns their scale.
float round_row_to_float8(const Kernels& kernels, int64_t count, std::vector<float>& values,
                          std::vector<uint8_t>& bytes) {
  float largest = 0;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[static_cast<size_t>(i)]);
    largest = std::max(largest, magnitude);
    is_finite = is_finite && std::isfinite(magnitude);
  }
  const float scale = largest / kLargestFloat8;
  const float inverse = 1.0f / scale;
  if (!is_finite || !std::isfinite(inverse)) {
    std::fill(bytes.begin(), bytes.end(), uint8_t{0});
    return is_finite ? 1.0f : std::nanf("");
  }
  for (float& value : values) value *= inverse;
  kernels.round_f8(values.data(), static_cast<int>(values.size()), bytes.data());
  return scale;
}

}  // namespace

void round_rows_to_float8(const Tensor& source, Float8E4M3* numbers, float* scales) {
  const Kernels& kernels = kernels_for(best_isa());
  const int64_t k = source.dim(1);
  std::vector<float> values(static_cast<size_t>(round_up(k, kFloat8Step)));
  std::vector<uint8_t> bytes(values.size());
  for (int64_t row = 0; row < source.dim(0); ++row) {
    row_to_floats(source, row, values.data());
    scales[row] = round_row_to_float8(kernels, k, values, bytes);
    std::memcpy(numbers + row * k, bytes.data(), static_cast<size_t>(k));
  }
}

void quantise_rows(const GroupLayout& layout, const Tensor& source,
                   const std::function<void(int64_t first_row, const GroupedRows& rows)>& take) {
  check(!layout.one_scale && !layout.is_unsigned && layout.scale_bytes != 1 &&
            layout.has_offsets == layout.four_bits,
        "rows are rounded to int8 without offsets or int4 with them, in groups of inputs");
  const Kernels& kernels = kernels_for(best_isa());
  RoundedRows rows(layout);
  for (int64_t first = 0; first < source.dim(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, source.dim(0) - first);
    for (int64_t row = 0; row < count; ++row) {
      row_to_floats(source, first + row, rows.values.data());
      rows.round(layout, kernels, row);
    }
    const GroupedRows rounded = {.rows = count,
                                 .data = rows.data.data(),
                                 .scales = rows.scales.data(),
                                 .offsets = layout.has_offsets ? rows.offsets.data() : nullptr};
    take(first, rounded);
  }
}

}  // namespace quire::ops
