#include "ops/cpu/weight_panels.h"

#include <algorithm>
#include <type_traits>

#include "base/check.h"
#include "ops/cpu/interleave_words.h"

namespace quire::ops {
namespace {

// Columns are visited in blocks so that the lines a block touches, 64 lanes of it, stay in the
// cache until the panel's other rows have filled them.
constexpr int64_t kPackBlock = 256;

// Where row `row` has its first value, in values.
int64_t row_offset(DType dtype, int64_t row, int64_t k) {
  const int64_t values = panel_step_values(dtype);
  const int64_t panel = row / kPanelLanes;
  const int64_t lane = row % kPanelLanes;
  return (panel * kPanelLanes * panel_steps(dtype, k) + lane) * values;
}

// Where the value of index i of K is from there.
int64_t value_offset(int64_t values, int64_t i) {
  return i / values * values * kPanelLanes + i % values;
}

// Rows in which a step is one word, and which are not whole words or of another type.
template <typename To, typename From>
void pack_converted(int64_t k0, int64_t k1, const Tensor& rows, std::byte* out) {
  constexpr auto kValues = static_cast<int64_t>(sizeof(uint32_t) / sizeof(To));
  const int64_t words = ceil_div(k1 - k0, kValues);
  To converted[kPanelLanes][kPackBlock];
  for (int64_t row = 0; row < rows.dim(0); ++row) {
    const From* in = rows.row<From>(row);
    for (int64_t i = k0; i < k1; ++i) converted[row][i - k0] = To(static_cast<float>(in[i]));
    std::fill(converted[row] + (k1 - k0), converted[row] + words * kValues, To(0.0f));
  }
  interleave_words(word_rows(converted, sizeof(converted[0]), rows.dim(0), words, out));
}

// Float8: a step is a byte a lane.
void pack_bytes(int64_t k0, int64_t k1, const Tensor& rows, std::byte* out) {
  for (int64_t row = 0; row < rows.dim(0); ++row) {
    const auto* in = reinterpret_cast<const std::byte*>(rows.row<Float8E4M3>(row));
    for (int64_t i = k0; i < k1; ++i) out[(i - k0) * kPanelLanes + row] = in[i];
  }
}

template <typename To, typename From>
void pack_in_blocks(DType dtype, const Tensor& rows, To* first_step) {
  const int64_t k = rows.dim(1);
  for (int64_t k0 = 0; k0 < k; k0 += kPackBlock) {
    const int64_t k1 = std::min(k, k0 + kPackBlock);
    auto* const out =
        reinterpret_cast<std::byte*>(first_step + value_offset(panel_step_values(dtype), k0));
    if constexpr (sizeof(To) == 1) {
      pack_bytes(k0, k1, rows, out);
    } else {
      pack_converted<To, From>(k0, k1, rows, out);
    }
  }
}

template <typename To, typename From>
void pack(DType dtype, int64_t first_row, const Tensor& source, To* panels) {
  const int64_t k = source.dim(1);
  const int64_t row_bytes = k * static_cast<int64_t>(sizeof(To));
  constexpr auto kWordBytes = static_cast<int64_t>(sizeof(uint32_t));
  const bool are_words = std::is_same_v<To, From> && sizeof(To) > 1 && row_bytes % kWordBytes == 0;
  const int64_t end = first_row + source.dim(0);
  for (int64_t begin = first_row; begin < end;) {
    const int64_t panel_end = std::min(end, (begin / kPanelLanes + 1) * kPanelLanes);
    const Tensor rows = source.rows(begin - first_row, panel_end - first_row);
    To* const first_step = panels + row_offset(dtype, begin, k);
    if (are_words) {
      interleave_words(word_rows(rows.row<From>(0),
                                 rows.row_stride() * static_cast<int64_t>(sizeof(From)),
                                 rows.dim(0), row_bytes / kWordBytes, first_step, end - panel_end));
    } else {
      pack_in_blocks<To, From>(dtype, rows, first_step);
    }
    begin = panel_end;
  }
}

template <typename To>
void pack_from(DType dtype, int64_t first_row, const Tensor& source, To* panels) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return pack<To, float>(dtype, first_row, source, panels);
    case DType::kBFloat16:
      return pack<To, BFloat16>(dtype, first_row, source, panels);
    case DType::kFloat16:
      return pack<To, Float16>(dtype, first_row, source, panels);
    default:
      check(false, "a dense weight is packed from float32, bfloat16 or float16");
  }
}

template <typename T>
void unpack(DType dtype, int64_t row, int64_t k, const T* panels, float* out) {
  const int64_t values = panel_step_values(dtype);
  const T* in = panels + row_offset(dtype, row, k);
  for (int64_t i = 0; i < k; ++i) out[i] = static_cast<float>(in[value_offset(values, i)]);
}

}  // namespace

void pack_panel_rows(DType dtype, int64_t first_row, const Tensor& source, std::byte* panels) {
  switch (dtype) {
    case DType::kBFloat16:
      return pack_from(dtype, first_row, source, reinterpret_cast<BFloat16*>(panels));
    case DType::kFloat8E4M3:
      return pack<Float8E4M3, Float8E4M3>(dtype, first_row, source,
                                          reinterpret_cast<Float8E4M3*>(panels));
    default:
      return pack_from(dtype, first_row, source, reinterpret_cast<float*>(panels));
  }
}

void unpack_panel_row(DType dtype, int64_t row, int64_t k, const std::byte* panels, float* out) {
  switch (dtype) {
    case DType::kBFloat16:
      return unpack(dtype, row, k, reinterpret_cast<const BFloat16*>(panels), out);
    case DType::kFloat8E4M3:
      return unpack(dtype, row, k, reinterpret_cast<const Float8E4M3*>(panels), out);
    default:
      return unpack(dtype, row, k, reinterpret_cast<const float*>(panels), out);
  }
}

}  // namespace quire::ops
