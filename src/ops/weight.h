#pragma once
// The weight of a linear layer, in the layout that its device's matrix product reads.
//
// A Weight is [N, K] (output features, input features), in one of the formats of weight_format.h.
// It is made empty and filled by ranges of rows from a checkpoint's tensors, so that fused layers
// (q, k and v as one) and a rank's shards are packed straight from the mapped file. Layout: on the
// CPU that of ops/cpu/weight_panels.h, for integers ops/cpu/group_panels.h; on a GPU rows follow
// each other, and integers lie as ops/group_tiles.h says. Thread safety: pack_rows, set_scales,
// pack_groups and quantise_rows may run at once on disjoint row ranges; const use is free.
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/dtype.h"
#include "core/tensor.h"
#include "ops/cpu/group_panels.h"
#include "ops/weight_format.h"

namespace quire::ops {

class Weight {
 public:
  Weight() = default;
  // All zero. Dense weights are float32, bfloat16 or, on a GPU, float16. Float8 in blocks is only
  // for GPUs. Integers are for either device; on a GPU in formats that has_group_tiles() allows.
  // The data's memory has at least `least_bytes`.
  Weight(WeightFormat format, int64_t n, int64_t k, const Device& device = {},
         size_t least_bytes = 0);

  const WeightFormat& format() const { return format_; }
  DType dtype() const { return format_.dtype; }
  int64_t n() const { return n_; }
  int64_t k() const { return k_; }
  DeviceType device() const { return device_.type; }
  // Bytes of the device's memory, scales and permutation included.
  size_t bytes() const { return data_.size() + scales_.size() + permutation_.size(); }

  // Rows [first_row, first_row + source.dim(0)) from `source` [rows, K] in the host's memory; it
  // may have any row stride. A dense weight takes float32, bfloat16 or float16, and rounds to
  // dtype() to nearest even; others take their own dtype. On a GPU rows arrive when the device's
  // memory has finished its uploads.
  void pack_rows(int64_t first_row, const Tensor& source);
  // Sets scales of float8 from `source`, float32, bfloat16 or float16: [rows, 1] for as many rows;
  // for blocks [rows, ceil(K / kFloat8Block)], for as many rows of blocks.
  void set_scales(int64_t first_row, const Tensor& source);
  // Rows [first_row, first_row + source.rows) of integers, with their scales and offsets. On a GPU
  // they are kept in the host's memory until finish_packing().
  void pack_groups(int64_t first_row, const GroupedRows& source);
  // To be called after the last rows of integers; does nothing for other formats.
  void finish_packing(ThreadPool& pool);
  // For integers: value i of each row given to pack_groups() belongs to input permutation[i], so
  // that the inputs of a group lie together (act-order). [k], each input once; to be set before the
  // first use. On a GPU there is room for it only after reserve_permutation().
  void set_permutation(std::span<const int32_t> permutation);
  void reserve_permutation();
  // Turns an integer weight into a dense one of zeros on the same device. Its memory must have
  // room.
  void become_dense(DType dtype);
  // Gives an integer weight offsets, before its first rows. Its memory must have room.
  void add_offsets();
  bool may_be_permuted() const { return permutation_.size() != 0; }
  // Takes dense rows, like pack_rows(), and rounds them (ops/cpu/quantise.h): to int8 without
  // offsets or int4 with them, in groups of inputs, or to float8 with a scale for each output.
  void quantise_rows(int64_t first_row, const Tensor& source);
  // Writes the numbers of row `row` as float32 to out[0..K): for embeddings tied to the output
  // layer, and tests. On the CPU only.
  void unpack_row(int64_t row, float* out) const;

  // In the device's layout.
  const std::byte* data() const { return data_.data(); }
  // Float8 only, else null: [N]; for blocks one row for each row of blocks.
  const float* scales() const { return reinterpret_cast<const float*>(scales_.data()); }
  // [K]; null where inputs are in their order.
  const int32_t* permutation() const {
    return is_permuted_ ? reinterpret_cast<const int32_t*>(permutation_.data()) : nullptr;
  }
  WeightView view() const {
    return {.format = format_, .data = data(), .scales = scales(), .permutation = permutation()};
  }

 private:
  // Integers on their way to a GPU: the rows of one panel may come in several calls.
  struct HostTiles {
    std::once_flag made;
    std::vector<std::byte> bytes;
  };

  void quantise_to_float8(int64_t first_row, const Tensor& source);
  // Zero before the first rows.
  std::byte* host_tiles();
  void unpack_integers(int64_t row, float* out) const;

  WeightFormat format_;
  int64_t n_ = 0;
  int64_t k_ = 0;
  Device device_;
  Buffer data_;
  Buffer scales_;
  Buffer permutation_;
  bool is_permuted_ = false;
  std::unique_ptr<HostTiles> host_tiles_;
};

// Bytes of a weight's data, with the scales of integers, on a device of this type.
size_t weight_data_bytes(const WeightFormat& format, int64_t n, int64_t k, DeviceType device);

}  // namespace quire::ops
