#pragma once
// Where a rank's layers are and what they are made of.
//
// Thread safety: a plain value.
#include "core/device.h"
#include "core/dtype.h"
#include "layers/sharding.h"

namespace quire {

struct Placement {
  DType dtype = DType::kFloat32;  // of the matrices in memory
  ParallelRank at;
  Device device;
  // On the CPU, 8 or 4: matrices that the checkpoint has dense are rounded to integers of so many
  // bits as they load (MatrixParameter). 0: they stay dense.
  int quantise_bits = 0;

  // The CPU computes in float32 whatever the weights are; a GPU in the weights' type.
  DType activation_dtype() const { return device.is_cpu() ? DType::kFloat32 : dtype; }
};

}  // namespace quire
