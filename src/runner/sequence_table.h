#pragma once
// What the runner knows of every sequence it was told of: its request, what it generated, its block
// table.
//
// Kept up to date from the batches, which carry only what is new, and from the tokens that the
// runner samples. So a step may start before the scheduler knows the tokens of the one before.
// Thread safety: one thread at a time, the rank's worker.
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "request/scheduled_batch.h"
#include "request/token_view.h"

namespace quire {

// A token that was sampled and that this rank does not know: the GPU's, which the host has not seen
// yet, or the last stage's, where a stage in between has no use for it. A negative number, which
// says from which row of the last step's logits.
constexpr int32_t unknown_token(int32_t row) {
  return -1 - row;
}
// That row; -1 where the token is known.
constexpr int32_t row_of_unknown(int32_t token_id) {
  return token_id < 0 ? -1 - token_id : -1;
}

struct SequenceState {
  std::shared_ptr<const Request> request;
  uint32_t index = 0;  // within the request's n
  std::vector<int32_t> output_token_ids;
  std::vector<int32_t> block_table;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> stop_ids;  // that min_tokens masks

  const SamplingParams& params() const { return request->params; }
  int64_t num_prompt_tokens() const { return request->num_prompt_tokens(); }
  // The prompt, then what was generated.
  TokenView tokens() const { return TokenView(request->prompt_token_ids, output_token_ids); }

  // Takes what was sampled behind each token of a chunk from its newest one on, one more than it
  // had drafts: the drafts up to the first that was not sampled in its place stay, then comes the
  // token sampled there. Returns how many of `sampled` these are.
  size_t append_sampled(std::span<const int32_t> sampled);
};

// A chunk of a step and its sequence, as the step finds it: looked up once, when the batch is taken
// in.
struct StepSequence {
  const ScheduledSequence& chunk;
  SequenceState& state;
  int64_t begin = 0;  // position of the chunk's first token

  int64_t end() const { return begin + chunk.num_tokens; }
  // Tokens of the sequence that the chunk's row of logits `row` has behind it: the row says what
  // follows them.
  size_t num_tokens_at(int64_t row) const {
    return static_cast<size_t>(end() - chunk.num_logits_rows() + 1 + row);
  }
};

class SequenceTable {
 public:
  // `eos_token_ids`: the model's.
  explicit SequenceTable(std::vector<int32_t> eos_token_ids)
      : eos_token_ids_(std::move(eos_token_ids)) {}

  // Takes in a batch's removed, added and scheduled sequences. Returns the scheduled ones in the
  // batch's order; they point into the batch and the table, and hold until the next call. The
  // drafts of a verify chunk are then tokens of its sequence, until append_sampled(); those of the
  // runner are still to be put in their places.
  std::vector<StepSequence> apply(const ScheduledBatch& batch);
  // Says what the output token `index` of a sequence is, which was appended as unknown. Sequences
  // that are gone are passed over.
  void resolve_token(SequenceId id, size_t index, int32_t token_id);
  // Puts `token_ids` in the place of the output tokens from `index` on, which are the drafts of the
  // last step.
  void replace_drafts(SequenceId id, size_t index, std::span<const int32_t> token_ids);
  size_t size() const { return sequences_.size(); }

 private:
  SequenceState make_state(const NewSequence& added) const;

  std::vector<int32_t> eos_token_ids_;
  std::unordered_map<SequenceId, SequenceState> sequences_;
};

}  // namespace quire
