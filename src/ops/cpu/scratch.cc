#include "ops/cpu/scratch.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "core/buffer.h"

namespace quire::ops {

size_t max_scratch_bytes(const ScratchNeeds& needs) {
  const auto rows = static_cast<size_t>(std::min(needs.max_num_tokens, kLinearPassRows));
  const auto even_k = static_cast<size_t>((needs.max_in_features + 1) / 2 * 2);
  // Activations rounded to int8, in groups of 16 or more inputs, and padded to the largest group
  // and to whole tiles.
  const auto int8_rows = round_up(rows, size_t{kAmxGroupRows});
  const size_t int8_row = round_up(even_k, size_t{128}) / 16 * (kInt8GroupHeader + 16);
  const int task_rows = std::max(kAttentionTaskRows, needs.heads_per_kv_head);
  const size_t attention = align_up(attention_scratch_bytes(task_rows, needs.head_dim)) *
                           static_cast<size_t>(needs.num_threads);
  // Tasks whose parts are shared are fewer than these.
  const int64_t tasks =
      needs.num_threads > 1 ? kAttentionTasksPerThread * needs.num_threads : int64_t{0};
  const int64_t splits = ceil_div(needs.max_model_len, kAttentionSplit);
  const int64_t parts =
      splits > 1 ? tasks * task_rows * splits * part_row_bytes(needs.head_dim) : 0;
  return std::max(std::max(rows * even_k * sizeof(float), int8_rows * int8_row),
                  attention + static_cast<size_t>(std::min(parts, kMaxPartBytes)));
}

}  // namespace quire::ops
