#include "runner/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void BatchBuilder::clear() {
  token_ids_.clear();
  positions_.clear();
  slot_mapping_.clear();
  query_start_.assign(1, 0);
  context_lens_.clear();
  logits_rows_.clear();
}

void BatchBuilder::add_sequence(const ScheduledSequence& scheduled, const SequenceState& state) {
  const TokenView tokens = state.tokens();
  // All but prefills reach to the sequence's last token, wherever that has come to be.
  const int64_t begin = scheduled.kind == ChunkKind::kPrefill
                            ? scheduled.num_computed_tokens
                            : static_cast<int64_t>(tokens.size()) - scheduled.num_tokens;
  const int64_t end = begin + scheduled.num_tokens;
  check(end <= static_cast<int64_t>(tokens.size()), "a token is scheduled before it is known");
  check(end <= static_cast<int64_t>(state.block_table.size()) * block_size_,
        "a token is scheduled without a block to hold it");
  for (int64_t position = begin; position < end; ++position) {
    const auto block = static_cast<size_t>(position / block_size_);
    token_ids_.push_back(tokens[static_cast<size_t>(position)]);
    positions_.push_back(static_cast<int32_t>(position));
    slot_mapping_.push_back(int64_t{state.block_table[block]} * block_size_ +
                            position % block_size_);
  }
  query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
  context_lens_.push_back(static_cast<int32_t>(end));
  for (int64_t left = scheduled.num_logits_rows(); left > 0; --left) {
    logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - static_cast<int32_t>(left));
  }
}

void BatchBuilder::fill_block_tables(const ScheduledBatch& batch, const SequenceTable& table) {
  size_t width = 1;
  for (const ScheduledSequence& scheduled : batch.sequences) {
    width = std::max(width, table.at(scheduled.id).block_table.size());
  }
  block_tables_.assign(width * batch.sequences.size(), -1);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const std::vector<int32_t>& blocks = table.at(batch.sequences[i].id).block_table;
    std::copy(blocks.begin(), blocks.end(),
              block_tables_.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
}

ForwardBatch BatchBuilder::build(const ScheduledBatch& batch, const SequenceTable& table) {
  clear();
  ForwardBatch forward;
  for (const ScheduledSequence& scheduled : batch.sequences) {
    add_sequence(scheduled, table.at(scheduled.id));
    forward.max_query_len = std::max(forward.max_query_len, scheduled.num_tokens);
    forward.max_context_len = std::max<int64_t>(forward.max_context_len, context_lens_.back());
  }
  fill_block_tables(batch, table);
  forward.num_tokens = static_cast<int64_t>(token_ids_.size());
  forward.num_seqs = static_cast<int64_t>(batch.sequences.size());
  forward.token_ids = as_tensor(token_ids_);
  forward.positions = as_tensor(positions_);
  forward.slot_mapping = as_tensor(slot_mapping_);
  forward.query_start = as_tensor(query_start_);
  forward.context_lens = as_tensor(context_lens_);
  forward.block_tables =
      Tensor(block_tables_.data(), DType::kInt32,
             {forward.num_seqs, static_cast<int64_t>(block_tables_.size()) / forward.num_seqs});
  forward.logits_rows = as_tensor(logits_rows_);
  return forward;
}

}  // namespace quire
