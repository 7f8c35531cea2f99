#pragma once
// Activations as products of float8 weights take them: rounded to float8 e4m3, with their scales.
//
// A product rounds its inputs itself, in a kernel of its own, where the op that makes them has not
// done so: rms_norm and gated_linear do it while they have a row at hand. The bits are the same.
// This header is shared with the CUDA library: plain values.
#include <cstdint>

namespace quire::ops {

// Activation [row, i] is data[row, i] times its scale. Pointers are to device memory.
struct Float8Activations {
  uint8_t* data = nullptr;  // [rows, k]; null: nothing is rounded
  // With scale_stride 0: [rows], one a row. Else [k / kFloat8Block, scale_stride]: for each
  // kFloat8Block inputs one a row, in the first `rows` places.
  float* scales = nullptr;
  int64_t scale_stride = 0;

  bool has_blocks() const { return scale_stride != 0; }
  // Those of the rows from `row` on, of a matrix of k columns.
  Float8Activations from_row(int64_t row, int64_t k) const {
    if (data == nullptr) return {};
    return {data + row * k, scales + row, scale_stride};
  }
};

}  // namespace quire::ops
