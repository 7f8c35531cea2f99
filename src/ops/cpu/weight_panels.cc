#include "ops/cpu/weight_panels.h"

#include <algorithm>

#include "base/check.h"

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

template <typename To, typename From>
void pack(DType dtype, int64_t first_row, const Tensor& source, To* panels) {
  const int64_t values = panel_step_values(dtype);
  const int64_t k = source.dim(1);
  const int64_t end = first_row + source.dim(0);
  for (int64_t begin = first_row; begin < end;) {
    const int64_t panel_end = std::min(end, (begin / kPanelLanes + 1) * kPanelLanes);
    for (int64_t k0 = 0; k0 < k; k0 += kPackBlock) {
      const int64_t k1 = std::min(k, k0 + kPackBlock);
      for (int64_t row = begin; row < panel_end; ++row) {
        const From* in = source.row<From>(row - first_row);
        To* out = panels + row_offset(dtype, row, k);
        for (int64_t i = k0; i < k1; ++i) {
          out[value_offset(values, i)] = To(static_cast<float>(in[i]));
        }
      }
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
      // Through float and back: the same bits.
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
