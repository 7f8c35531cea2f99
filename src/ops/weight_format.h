#pragma once
// How the weight of a linear layer is stored, and how it is described to a kernel.
//
// A weight [n, k] has n output and k input features. Whatever the format, the number at output i
// and input j is, in float32 and rounded after each operation,
//
//   scales[i, g] * data[i, j'] + offsets[i, g]
//
// where g is the group of j' (j' / group_size). Input j is stored at j'; with a permutation,
// position j' holds input permutation[j']. Float8 with groups has a scale for each block: scales[i
// / group_size, g]. A format has only some of these parts. A missing one is null and means a scale
// of 1, an offset of 0, inputs in their order. A zero point z is the offset -scale * z. This header
// is shared with the CUDA library: plain values.
#include <cstdint>

#include "core/dtype.h"

namespace quire::ops {

// Outputs, and inputs, of a block of float8 that shares one scale.
inline constexpr int64_t kFloat8Block = 128;

enum class WeightKind : uint8_t {
  kDense,   // float32, bfloat16 or float16: the numbers themselves
  kFloat8,  // float8 e4m3, and a scale for each output feature or for each block of 128 x 128
  kInt8,    // integers from -128 to 127, and a scale for each group of an output's inputs
  kInt4,    // integers from -8 to 7, or from 0 to 15, the same way
};

struct WeightFormat {
  WeightKind kind = WeightKind::kDense;
  DType dtype = DType::kFloat32;  // of an element of the data; integers are bytes, uint8
  // Input features that share a scale and an offset; 0: all of an output's. The last group may be
  // shorter. Integers: 0, 16, 32, 64 or 128. Float8: 0, or on a GPU kFloat8Block, and then this
  // many outputs share the scale, too.
  int64_t group_size = 0;
  bool has_offsets = false;
  bool is_unsigned = false;  // of kInt4: integers are from 0 to 15
  // Type of integers' scales and offsets in memory: float32; on the CPU also bfloat16, or int8
  // times a float32 for each kScaleBlock inputs of an output.
  DType scale_dtype = DType::kFloat32;
  // Integers on the CPU: whether a product rounds its activations to int8, with a scale for each
  // group of inputs (of 128 where group_size is 0), to use integer arithmetic.
  bool rounds_activations = false;

  constexpr WeightFormat() = default;
  // Dense, of this type.
  constexpr WeightFormat(DType dense) : dtype(dense) {}
  // A scale for each output; with group_size kFloat8Block, for each block.
  static constexpr WeightFormat float8(int64_t group_size = 0) {
    WeightFormat format(DType::kFloat8E4M3);
    format.kind = WeightKind::kFloat8;
    format.group_size = group_size;
    return format;
  }
  // Integers of 8 or 4 bits.
  static constexpr WeightFormat integers(int bits, int64_t group_size, bool has_offsets = false,
                                         DType scale_dtype = DType::kFloat32) {
    WeightFormat format(DType::kUInt8);
    format.kind = bits == 4 ? WeightKind::kInt4 : WeightKind::kInt8;
    format.group_size = group_size;
    format.has_offsets = has_offsets;
    format.scale_dtype = scale_dtype;
    return format;
  }

  bool operator==(const WeightFormat&) const = default;
  constexpr bool is_dense() const { return kind == WeightKind::kDense; }
  constexpr bool is_integer() const {
    return kind == WeightKind::kInt8 || kind == WeightKind::kInt4;
  }
  // Whether it has scales; those of integers are given with their data (Weight::pack_groups).
  constexpr bool has_scales() const { return !is_dense(); }
};

// Inputs, in whole groups, that share the float32 by which int8 scales and offsets are multiplied.
inline constexpr int64_t kScaleBlock = 256;

// Whether an integer format may have groups of this size.
constexpr bool is_group_size(int64_t size) {
  return size == 0 || size == 16 || size == 32 || size == 64 || size == 128;
}

// The parts of a weight in its device's memory and layout. `data` of a dense or float8 weight is in
// panels on the CPU (ops/cpu/weight_panels.h), row major and contiguous on a GPU. Integers have
// their scales and offsets in their data (ops/cpu/group_panels.h, on a GPU ops/group_tiles.h).
struct WeightView {
  WeightFormat format;
  const void* data = nullptr;
  const float* scales = nullptr;         // [n, groups]; of float8 blocks [ceil(n / 128), groups]
  const float* offsets = nullptr;        // [n, groups]
  const int32_t* permutation = nullptr;  // [k]: act-order's, each input feature once
};

}  // namespace quire::ops
