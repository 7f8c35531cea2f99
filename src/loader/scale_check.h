#pragma once
// Whether the scales of quantised weights are numbers to multiply by.
//
// Thread safety: a free function; the pool's is its caller's.
#include <vector>

#include "base/thread_pool.h"
#include "core/dtype.h"
#include "loader/checkpoint.h"

namespace quire {

struct ScaleTensor {
  const CheckpointTensor* tensor = nullptr;
  DType dtype = DType::kFloat32;  // float32, float16 or bfloat16
  bool may_be_zero = false;
  bool is_positive = false;
};

// Throws Error for the first number that is not finite, is zero where it may not be, or is below
// zero where all are positive; where numbers may be zero, if all of a tensor's are. All threads
// read, as there may be many millions.
void check_scales(const std::vector<ScaleTensor>& tensors, ThreadPool& pool);

}  // namespace quire
