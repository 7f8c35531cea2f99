// Scheduler::StepMaker: the chunks that the batch is made of, and what they are charged as.
#include <algorithm>
#include <utility>

#include "scheduler/step_maker.h"

namespace quire {

using scheduler_internal::token_cost;

int64_t Scheduler::StepMaker::num_drafts(const ScheduledState& state) const {
  if (state.drafts.empty()) return 0;
  const int64_t budget = tokens_left() - 1 - num_own_behind_ - num_others_behind_;
  const int64_t length =
      state.sequence.max_num_tokens(s_.config.max_model_len) - state.num_tokens() - 1;
  const int64_t num_free = std::max<int64_t>(s_.pool.num_free() - num_blocks_behind_, 0);
  const int64_t slots =
      (std::ssize(state.blocks) + num_free) * s_.config.block_size - state.num_computed_tokens - 1;
  return std::clamp<int64_t>(std::min({budget, drafts_left_, length, slots}), 0,
                             std::ssize(state.drafts));
}

void Scheduler::StepMaker::schedule_decode(ScheduledState& state) {
  const size_t num_blocks = state.blocks.size();
  if (s_.lacks_block(state)) state.blocks.push_back(s_.pool.take());
  const int64_t num_tokens = 1 + num_drafts(state);
  if (num_tokens > 1) {
    const int64_t needed = s_.blocks_for(state.num_computed_tokens + num_tokens);
    while (std::ssize(state.blocks) < needed) state.blocks.push_back(s_.pool.take());
  }
  state.client.num_blocks += std::ssize(state.blocks) - static_cast<int64_t>(num_blocks);
  const ChunkKind kind = num_tokens > 1 ? ChunkKind::kVerify : ChunkKind::kDecode;
  schedule_chunk(state, kind, num_tokens, num_blocks);
  state.drafts.clear();
}

void Scheduler::StepMaker::schedule_chunk(ScheduledState& state, ChunkKind kind, int64_t num_tokens,
                                          size_t first_new_block) {
  state.chunk_step = batch_.step;
  state.chunk_index = batch_.sequences.size();
  ScheduledSequence& chunk = batch_.sequences.emplace_back();
  chunk.id = state.sequence.id();
  chunk.kind = kind;
  chunk.num_computed_tokens = state.num_computed_tokens;
  chunk.num_tokens = num_tokens;
  if (kind == ChunkKind::kVerify) {
    chunk.draft_token_ids = std::exchange(state.drafts, {});
    chunk.draft_token_ids.resize(static_cast<size_t>(num_tokens - 1));
    drafts_left_ -= num_tokens - 1;
  }
  state.verifies = kind == ChunkKind::kVerify;
  for (size_t i = first_new_block; i < state.blocks.size(); ++i) {
    chunk.new_block_ids.push_back(state.blocks[i].id());
  }
  kind == ChunkKind::kPrefill ? charge_prefill(state, num_tokens) : charge(state, num_tokens, 1);
  chunk.samples = !state.is_prefilling();
  state.num_placeholders += chunk.num_logits_rows();
  s_.file_full_blocks(state);
}

void Scheduler::StepMaker::grow(ScheduledState& state, int64_t num_tokens) {
  ScheduledSequence& chunk = batch_.sequences[state.chunk_index];
  chunk.num_tokens += num_tokens;
  charge_prefill(state, num_tokens);
  chunk.samples = !state.is_prefilling();
  state.num_placeholders += chunk.num_logits_rows();
  s_.file_full_blocks(state);
}

void Scheduler::StepMaker::charge(ScheduledState& state, int64_t num_tokens, int64_t cost) {
  batch_.num_tokens += num_tokens;
  state.num_computed_tokens += num_tokens;
  const int64_t charged = num_tokens * cost;
  work_ += charged;
  state.client.virtual_time +=
      charged == 1 ? state.client.cost_of_one : token_cost(charged, state.client.weight);
}

void Scheduler::StepMaker::charge_prefill(ScheduledState& state, int64_t num_tokens) {
  const int64_t cost = prompt_token_cost(state);
  prefill_left_ -= num_tokens * cost;
  state.client.taken += num_tokens * cost;
  charge(state, num_tokens, cost);
}

}  // namespace quire
