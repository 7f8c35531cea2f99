#pragma once
// Where a rank's layers are, and in which types.
//
// Thread safety: a plain value.
#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"
#include "layers/sharding.h"

namespace quire {

// How matrices that are dense in the checkpoint are rounded as they load (MatrixParameter): not at
// all, to integers in groups, or to float8 with a scale for each output.
enum class WeightRounding : uint8_t { kNone, kInt8, kInt4, kFloat8 };

struct Placement {
  DType dtype = DType::kFloat32;  // of the matrices in memory
  ParallelRank at;
  Device device;
  WeightRounding rounding = WeightRounding::kNone;
  // On a GPU: whether its weights may be float8 or integers. Not the embedding's and the output
  // layer's, where errors cost more and rows are looked up.
  bool may_be_quantised = true;
  // Whether attention takes a checkpoint's scales of the KV cache, which is float8 then.
  bool has_kv_scales = false;

  // The CPU computes in float32 whatever the weights are; a GPU in the weights' type.
  DType activation_dtype() const { return device.is_cpu() ? DType::kFloat32 : dtype; }
};

}  // namespace quire
