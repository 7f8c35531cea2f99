#pragma once
// Memory that the ops use in addition to their arguments (Stream::scratch).
#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

// Rows of the input of a linear op that are packed at once. Weights are read once for each pass, so
// 1,000 rows make them cheap, and the bound makes scratch independent of the batch.
inline constexpr int64_t kLinearPassRows = 172 * kTileRows;
// Rows (tokens times heads that share a KV head) of an attention task, at most, unless one token's
// heads are more: their queries, sums and one tile of keys and values stay in the L2 cache.
inline constexpr int kAttentionTaskRows = 8 * kTileRows;

// Bytes for one task of `rows` rows: the kernel's own, a part's sums, maxima and denominators
// twice, and queries as integers with their scales: eight arrays, each aligned.
constexpr size_t attention_scratch_bytes(int rows, int head_dim) {
  const auto columns = static_cast<size_t>(head_dim);
  const size_t row_bytes =
      kAttentionRowBytes + columns * (sizeof(float) + sizeof(int16_t)) + 5 * sizeof(float);
  return static_cast<size_t>(rows) * row_bytes + 8 * kAlignment;
}

// Attention of a long context is merged from its parts, each of kAttentionSplit positions from 0
// on. Several threads share a sequence's parts where they are more than a
// kAttentionTasksPerThread-th of a thread's share of the work, and their results take at most
// kMaxPartBytes.
inline constexpr int64_t kAttentionSplit = 512;
static_assert(kAttentionSplit % kAttentionTile == 0);
inline constexpr int64_t kAttentionTasksPerThread = 4;
inline constexpr int64_t kMaxPartBytes = int64_t{8} << 20;
// Bytes of one row of one part: its sums, maximum and denominator.
constexpr int64_t part_row_bytes(int64_t head_dim) {
  return (head_dim + 2) * int64_t{sizeof(float)};
}

struct ScratchNeeds {
  int64_t max_num_tokens = 0;   // of one forward pass
  int64_t max_in_features = 0;  // of any linear layer of the rank
  int64_t max_model_len = 0;
  int heads_per_kv_head = 1;
  int head_dim = 0;
  int num_threads = 1;
};
// The most that any op takes from Stream::scratch for a model of these sizes.
size_t max_scratch_bytes(const ScratchNeeds& needs);

}  // namespace quire::ops
