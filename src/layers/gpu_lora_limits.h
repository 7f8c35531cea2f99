#pragma once
// Sizes of the adapters that a rank's GPU has room for.
//
// Thread safety: plain values.
#include <cstdint>

#include "core/dtype.h"

namespace quire {

struct GpuLoraLimits {
  int max_loras = 0;
  int64_t max_rank = 0;
  int64_t copy_bytes = 0;  // of an adapter's trained copies of matrices
  int64_t max_rows = 0;    // in a step
  int64_t max_logits = 0;  // rows whose logits are computed at once
  DType dtype = DType::kFloat32;
};

}  // namespace quire
