#pragma once
// Turns a ScheduledBatch into the arrays of a ForwardBatch.
//
// Thread safety: one thread at a time, the rank's worker.
#include <cstdint>
#include <vector>

#include "core/forward_batch.h"
#include "request/scheduled_batch.h"
#include "runner/sequence_table.h"

namespace quire {

class BatchBuilder {
 public:
  // block_size: tokens in a KV block.
  explicit BatchBuilder(int block_size) : block_size_(block_size) {}

  // `table` has taken in `batch`. The result points into the builder and holds until the next call;
  // logits_rows has the last rows of each sequence that samples (num_logits_rows), in the batch's
  // order.
  ForwardBatch build(const ScheduledBatch& batch, const SequenceTable& table);

 private:
  void clear();
  void add_sequence(const ScheduledSequence& scheduled, const SequenceState& state);
  void fill_block_tables(const ScheduledBatch& batch, const SequenceTable& table);

  int block_size_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slot_mapping_;
  std::vector<int32_t> query_start_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> block_tables_;
  std::vector<int32_t> logits_rows_;
};

// A view of a vector as a tensor of one dimension.
template <typename T>
Tensor as_tensor(std::vector<T>& values) {
  return Tensor(values.data(), dtype_of<T>(), {static_cast<int64_t>(values.size())});
}

}  // namespace quire
