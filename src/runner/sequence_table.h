#pragma once
// What the runner knows of every running sequence: its request, its output, its block table.
//
// Batches, which carry only what is new, and the tokens that the runner samples keep it up to date.
// So a step may start before the scheduler knows the tokens of the step before. Thread safety: one
// thread at a time, the rank's worker.
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "request/scheduled_batch.h"
#include "request/token_view.h"

namespace quire {

// Stands for a sampled token that this rank does not know: a GPU's, which the host has not seen
// yet, or the last stage's, which stages in between never need. A negative number that says where
// its GPU has it: among the ids of the last step, or on the first and last of several stages among
// those of the newest steps (GpuStage::recent_ids()).
constexpr int32_t unknown_token(int32_t row) {
  return -1 - row;
}
// That row; -1 where the token is known.
constexpr int32_t row_of_unknown(int32_t token_id) {
  return token_id < 0 ? -1 - token_id : -1;
}

struct SequenceState {
  std::shared_ptr<const Request> request;
  uint32_t index = 0;   // within the request's n
  uint64_t serial = 0;  // of the state: it has another one when the sequence comes back
  std::vector<int32_t> output_token_ids;
  std::vector<int32_t> block_table;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<int32_t> stop_ids;  // that min_tokens masks

  const SamplingParams& params() const { return request->params; }
  int64_t num_prompt_tokens() const { return request->num_prompt_tokens(); }
  // The prompt, then what was generated.
  TokenView tokens() const { return TokenView(request->prompt_token_ids, output_token_ids); }

  // Takes the tokens sampled behind each token of a chunk from its newest token on, one more than
  // it had drafts. Keeps the drafts up to the first that differs from the token sampled in its
  // place, and then that sampled token. Returns how many of `sampled` were kept.
  size_t append_sampled(std::span<const int32_t> sampled);
  // Whether its newest token is not known.
  bool awaits_token() const {
    return !output_token_ids.empty() && row_of_unknown(output_token_ids.back()) >= 0;
  }
};

// A chunk of a step with its sequence, looked up once when the batch is taken in.
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
  // batch's order; they point into the batch and the table, and are valid until the next call. The
  // drafts of a verify chunk become tokens of its sequence until append_sampled(); drafts that the
  // runner makes are still to be filled in.
  std::vector<StepSequence> apply(const ScheduledBatch& batch);
  // Sets the output token `index` of a sequence, which was appended as unknown. Ignores sequences
  // that are gone.
  void resolve_token(SequenceId id, size_t index, int32_t token_id);
  // For ranks that do not sample. What a step samples of the sequence is not known yet: its drafts
  // stay, and an unknown token follows them, until take_sampled() or cut_to_computed().
  // take_sampled() takes what was sampled, as append_sampled() does. Ignores states that are gone.
  void take_sampled(SequenceId id, uint64_t serial, std::span<const int32_t> sampled);
  // Where a rank never learns what was sampled, a batch says how many tokens of its sequences
  // stayed: all chunks but prefills begin with the last of them. The others are removed.
  void cut_to_computed(const ScheduledBatch& batch);
  // Null for an id that is unknown.
  const SequenceState* find(SequenceId id) const;
  // Null for a state that is gone.
  SequenceState* find(SequenceId id, uint64_t serial);
  // Puts `token_ids` in the place of the output tokens from `index` on, which are the drafts of the
  // sequence's last step. Ignores states that are gone.
  void replace_drafts(SequenceId id, uint64_t serial, size_t index,
                      std::span<const int32_t> token_ids);
  size_t size() const { return sequences_.size(); }

 private:
  SequenceState make_state(const NewSequence& added);

  std::vector<int32_t> eos_token_ids_;
  uint64_t next_serial_ = 0;
  std::unordered_map<SequenceId, SequenceState> sequences_;
};

}  // namespace quire
