#pragma once
// Layout of a weight [n, k] in the CPU's memory: packed into panels.
//
// A panel holds kPanelLanes output features side by side, [steps][kPanelLanes][values a step], with
// K inside: one layout serves one input row and many alike, and each output element is one chain of
// multiply-adds in order of k, whatever the number of rows or threads. A step is one value of
// float32 or float8, or two of bfloat16. Output features are padded to whole panels and K to whole
// steps, with zeros. ops/cpu/linear_blocking.h multiplies by it.
//
// Thread safety: pack_panel_rows may run at once on disjoint rows.
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

// How many values of one lane a step has; how many steps a panel has; how many bytes a step of all
// lanes has.
constexpr int64_t panel_step_values(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : 1;
}
constexpr int64_t panel_steps(DType dtype, int64_t k) {
  return ceil_div(k, panel_step_values(dtype));
}
constexpr int64_t panel_step_bytes(DType dtype) {
  return kPanelLanes * panel_step_values(dtype) * static_cast<int64_t>(size_of(dtype));
}
constexpr int64_t num_panels(int64_t n) {
  return ceil_div(n, kPanelLanes);
}
// Bytes of a whole weight of float32, bfloat16 or float8 e4m3.
constexpr size_t panel_bytes(DType dtype, int64_t n, int64_t k) {
  return static_cast<size_t>(num_panels(n) * panel_steps(dtype, k) * panel_step_bytes(dtype));
}

// Packs `source` [rows, k], float32, bfloat16 or float16, or float8 e4m3 where `dtype` is, as rows
// from first_row on. It may have any row stride.
void pack_panel_rows(DType dtype, int64_t first_row, const Tensor& source, std::byte* panels);
// The k values of a row as float32.
void unpack_panel_row(DType dtype, int64_t row, int64_t k, const std::byte* panels, float* out);

}  // namespace quire::ops
