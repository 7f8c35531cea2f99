#include "runner/sequence_table.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

size_t SequenceState::append_sampled(std::span<const int32_t> sampled) {
  std::vector<int32_t>& output = output_token_ids;
  const size_t first_draft = output.size() - (sampled.size() - 1);
  const auto differ = std::mismatch(output.begin() + static_cast<std::ptrdiff_t>(first_draft),
                                    output.end(), sampled.begin());
  output.erase(differ.first, output.end());
  output.push_back(*differ.second);
  return output.size() - first_draft;
}

SequenceState SequenceTable::make_state(const NewSequence& added) {
  SequenceState state;
  state.serial = next_serial_++;
  state.request = added.request;
  state.index = added.index;
  state.output_token_ids = added.output_token_ids;
  const SamplingParams& params = state.params();
  state.logit_bias.assign(params.logit_bias.begin(), params.logit_bias.end());
  if (params.min_tokens > 0) {
    state.stop_ids = params.stop_token_ids;
    if (!params.ignore_eos) {
      state.stop_ids.insert(state.stop_ids.end(), eos_token_ids_.begin(), eos_token_ids_.end());
    }
  }
  return state;
}

std::vector<StepSequence> SequenceTable::apply(const ScheduledBatch& batch) {
  for (SequenceId id : batch.removed) {
    check(sequences_.erase(id) == 1, "the batch removes a sequence that the runner doesn't know");
  }
  for (const NewSequence& added : batch.added) {
    check(sequences_.emplace(added.id, make_state(added)).second,
          "the batch adds a sequence that the runner knows already");
  }
  std::vector<StepSequence> scheduled;
  scheduled.reserve(batch.sequences.size());
  for (const ScheduledSequence& chunk : batch.sequences) {
    const auto it = sequences_.find(chunk.id);
    check(it != sequences_.end(), "the batch schedules a sequence that the runner doesn't know");
    SequenceState& state = it->second;
    state.block_table.insert(state.block_table.end(), chunk.new_block_ids.begin(),
                             chunk.new_block_ids.end());
    state.output_token_ids.insert(state.output_token_ids.end(), chunk.draft_token_ids.begin(),
                                  chunk.draft_token_ids.end());
    // All chunks except prefills reach to the sequence's last token, wherever that is by now.
    const int64_t begin = chunk.kind == ChunkKind::kPrefill
                              ? chunk.num_computed_tokens
                              : static_cast<int64_t>(state.tokens().size()) - chunk.num_tokens;
    scheduled.push_back({.chunk = chunk, .state = state, .begin = begin});
  }
  return scheduled;
}

void SequenceTable::resolve_token(SequenceId id, size_t index, int32_t token_id) {
  const auto it = sequences_.find(id);
  // A preempted sequence may have come back, with the token in its list.
  if (it == sequences_.end() || index >= it->second.output_token_ids.size()) return;
  it->second.output_token_ids[index] = token_id;
}

void SequenceTable::take_sampled(SequenceId id, uint64_t serial, std::span<const int32_t> sampled) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second.serial != serial) return;
  check(it->second.awaits_token(), "what was sampled is taken once");
  it->second.output_token_ids.pop_back();
  it->second.append_sampled(sampled);
}

void SequenceTable::cut_to_computed(const ScheduledBatch& batch) {
  for (const ScheduledSequence& chunk : batch.sequences) {
    const auto it = sequences_.find(chunk.id);
    if (chunk.kind == ChunkKind::kPrefill || it == sequences_.end()) continue;
    SequenceState& state = it->second;
    const int64_t num_output = chunk.num_computed_tokens + 1 - state.num_prompt_tokens();
    check(num_output >= 0 && num_output <= std::ssize(state.output_token_ids),
          "a chunk begins with a token that a step before it may have brought");
    state.output_token_ids.resize(static_cast<size_t>(num_output));
  }
}

const SequenceState* SequenceTable::find(SequenceId id) const {
  const auto it = sequences_.find(id);
  return it == sequences_.end() ? nullptr : &it->second;
}

SequenceState* SequenceTable::find(SequenceId id, uint64_t serial) {
  const auto it = sequences_.find(id);
  return it == sequences_.end() || it->second.serial != serial ? nullptr : &it->second;
}

void SequenceTable::replace_drafts(SequenceId id, uint64_t serial, size_t index,
                                   std::span<const int32_t> token_ids) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end() || it->second.serial != serial) return;
  std::vector<int32_t>& output = it->second.output_token_ids;
  check(index <= output.size(), "drafts are behind what was generated");
  output.resize(index);
  output.insert(output.end(), token_ids.begin(), token_ids.end());
}

}  // namespace quire
