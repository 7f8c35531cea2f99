#pragma once
// How the weight of a linear layer is stored, and what a kernel is told of one.
//
// A weight [n, k] has n output and k input features. Whatever the format, the number at output i
// and input j is
//
//   scales[i, g] * (data[i, j'] - zeros[i, g])
//
// where g is the group of j' (j' / group_size), and input j is stored at j', with a permutation
// input permutation[j'] at j'. A format has some of these parts; what it lacks is null: a scale of
// 1, a zero of 0, inputs in their order. This header is shared with the CUDA library: plain values.
#include <cstdint>

#include "core/dtype.h"

namespace quire::ops {

enum class WeightKind : uint8_t {
  kDense,   // float32, bfloat16 or float16: the numbers themselves
  kFloat8,  // float8 e4m3, and a scale for each output feature
};

struct WeightFormat {
  WeightKind kind = WeightKind::kDense;
  DType dtype = DType::kFloat32;  // of an element of the data
  int64_t group_size = 0;  // input features that share a scale and a zero; 0: all of an output

  constexpr WeightFormat() = default;
  // Dense, of this type.
  constexpr WeightFormat(DType dense) : dtype(dense) {}
  static constexpr WeightFormat float8() {
    WeightFormat format(DType::kFloat8E4M3);
    format.kind = WeightKind::kFloat8;
    return format;
  }

  bool operator==(const WeightFormat&) const = default;
  constexpr bool is_dense() const { return kind == WeightKind::kDense; }
  constexpr bool has_scales() const { return kind == WeightKind::kFloat8; }
};

// The parts of a weight, in the layout of its device and in its memory. `data` of a dense weight is
// on the CPU in panels (ops/cpu/weight_panels.h), on a GPU row major and contiguous.
struct WeightView {
  WeightFormat format;
  const void* data = nullptr;
  const float* scales = nullptr;         // [n, groups]
  const void* zeros = nullptr;           // [n, groups], as the format stores them
  const int32_t* permutation = nullptr;  // [k]: act-order's, each input feature once
};

}  // namespace quire::ops
