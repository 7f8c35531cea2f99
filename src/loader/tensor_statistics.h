#pragma once
// Statistics of the values of a checkpoint's tensor, from one pass over them.
//
// Thread safety: the calling thread owns `pool`.
#include <cstdint>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"

namespace quire {

struct TensorStatistics {
  bool is_floating =
      false;  // F64, F32, BF16, F16, F8_E4M3 or blocks: of others nothing else is known
  int64_t num_values = 0;
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  int64_t num_zero = 0;
  // Of the finite values; 0 where there are none.
  double min = 0;
  double max = 0;
};

TensorStatistics statistics_of(const CheckpointTensor& tensor, ThreadPool& pool);

}  // namespace quire
