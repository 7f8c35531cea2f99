#pragma once
// How much memory the ops use besides their arguments (Stream::scratch).
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace quire::ops {

// Rows of the input of a linear op that are packed at once. Weights are read once for each pass, so
// 1,000 rows make them cheap, and the bound makes scratch independent of the batch.
inline constexpr int64_t kLinearPassRows = 172 * kTileRows;
// Rows (tokens times heads that share a KV head) of an attention task, at most, unless one token's
// heads are more: their queries, sums and one tile of keys and values stay in the L2 cache.
inline constexpr int kAttentionTaskRows = 8 * kTileRows;

// Of one task: queries, running sums, maxima and denominators, and copies of one partial tile.
constexpr size_t attention_scratch_bytes(int rows, int head_dim) {
  const size_t padded_rows = static_cast<size_t>(rows) + kTileRows;
  const size_t head_bytes = static_cast<size_t>(head_dim) * 4;
  return padded_rows * (2 * head_bytes + 32) + (kKeyLanes + 1) * head_bytes + 256;
}

struct ScratchNeeds {
  int64_t max_num_tokens = 0;   // of one forward pass
  int64_t max_in_features = 0;  // of any linear layer of the rank
  int heads_per_kv_head = 1;
  int head_dim = 0;
  int num_threads = 1;
};
// The most that any op takes from Stream::scratch for a model of these sizes.
size_t max_scratch_bytes(const ScratchNeeds& needs);

}  // namespace quire::ops
