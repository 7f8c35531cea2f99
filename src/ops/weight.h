#pragma once
// The weight of a linear layer, in the layout that this machine's matrix product reads.
//
// A Weight is [N, K] (output features, input features). It is made empty and filled row range by
// row range from a checkpoint's tensors, so that fused layers (q, k and v as one) and shards of a
// rank are packed straight from the mapped file. One layout serves one input row and many alike:
// panels of output features with K inside, so each output element is one chain of multiply-adds in
// order of k, whatever the number of rows or threads. Thread safety: pack_rows may run at once on
// disjoint row ranges; const use is free.
#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"
#include "core/tensor.h"

namespace quire::ops {

class Weight {
 public:
  Weight() = default;
  // On the CPU float32 or bfloat16, with memory for N rounded up to whole panels; the padding is
  // zero. On a GPU float32, bfloat16 or float16, row major.
  Weight(DType dtype, int64_t n, int64_t k, const Device& device = {});

  DType dtype() const { return dtype_; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  // The bytes that `Weight(dtype, n, k)` takes on a device of that type.
  static size_t bytes(DType dtype, int64_t n, int64_t k, DeviceType device = DeviceType::kCpu);
  size_t bytes() const { return buffer_.size(); }

  // Rows [first_row, first_row + source.dim(0)) from `source` [rows, K], float32, bfloat16 or
  // float16 (converted to dtype() by rounding to nearest even) in the host's memory; it may have
  // any row stride. On a GPU rows arrive when the device's memory has finished its uploads.
  void pack_rows(int64_t first_row, const Tensor& source);
  // Copies row `row` out as float32 to out[0..K): for embeddings tied to the output layer, and
  // tests. On the CPU alone.
  void unpack_row(int64_t row, float* out) const;

  // In the device's layout.
  const std::byte* data() const { return buffer_.data(); }

 private:
  DType dtype_ = DType::kFloat32;
  int64_t n_ = 0;
  int64_t k_ = 0;
  Device device_;
  Buffer buffer_;
};

}  // namespace quire::ops
