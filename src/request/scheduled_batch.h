#pragma once
// What the scheduler tells the runner to do in one step, and what comes back: plain data.
//
// The runner keeps each running sequence's tokens and block table, so a step carries only what is
// new. Steps run in the order in which they were scheduled. A sequence may be scheduled for step
// N+1 before the scheduler knows its tokens of step N: the runner appends the tokens that it
// samples to its own list, so it has them when step N+1 starts. No callbacks, and no pointers
// except to a request's facts, so request/batch_encoding.h can turn a batch into bytes. Thread
// safety: immutable once submitted.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "request/request.h"
#include "request/token_list.h"

namespace quire {

using SequenceId = uint64_t;

// A sequence that the runner does not know (yet, or any more, after a preemption).
struct NewSequence {
  SequenceId id = 0;
  std::shared_ptr<const Request> request;  // never null
  uint32_t index = 0;                      // within n
  std::vector<int32_t> output_token_ids;   // generated before a preemption
};

// Why a step computes a chunk of a sequence's tokens.
enum class ChunkKind : uint8_t {
  // Tokens that the sequence was added with: its prompt, and what it generated before a preemption.
  // The chunk that reaches the last of them samples the next token.
  kPrefill,
  // The newest token. Samples the next one.
  kDecode,
  // The newest token, then drafts: guesses of the tokens that follow. Each is followed by a sampled
  // token. The chunk brings the drafts that equal what was sampled in their places, up to the first
  // that does not, and the token sampled behind the last of these.
  kVerify,
};

// Stands in the place of a draft that the runner's own drafter is to make.
inline constexpr int32_t kDraftOfRunner = -1;

// The most drafts of a chunk: with the token sampled behind them a step brings at most
// kMaxTokensPerStep tokens of a sequence.
inline constexpr size_t kMaxDraftTokens = kMaxTokensPerStep - 1;

struct ScheduledSequence {
  SequenceId id = 0;
  ChunkKind kind = ChunkKind::kPrefill;
  // Where a prefill chunk starts. Other chunks start at the newest token that the runner has. That
  // is here, or earlier if a verify chunk of the sequence was in flight and kept fewer drafts than
  // it could.
  int64_t num_computed_tokens = 0;
  int64_t num_tokens = 0;  // the chunk's length, >= 1
  bool samples = false;    // always but for prefill chunks that do not reach the end
  std::vector<int32_t> draft_token_ids{};  // kVerify: num_tokens - 1 of them, 1 to kMaxDraftTokens
  std::vector<int32_t> new_block_ids{};    // appended to the block table

  // How many of the chunk's last tokens need logits.
  int64_t num_logits_rows() const {
    return samples ? 1 + static_cast<int64_t>(draft_token_ids.size()) : 0;
  }
  bool operator==(const ScheduledSequence&) const = default;
};

struct ScheduledBatch {
  uint64_t step = 0;
  std::vector<SequenceId> removed;  // finished, aborted or preempted: forget these first
  std::vector<NewSequence> added;   // then add these, with empty block tables
  // Decodes first, then verify chunks, then prefills. In each layer the keys and values of the
  // whole batch must be written before a prefill reads any: a new sequence may share blocks that
  // another sequence fills in this step.
  std::vector<ScheduledSequence> sequences;
  int64_t num_tokens = 0;  // over all sequences
  // Whether the runner's drafter reads this step's prompts, too: true while drafts are worth their
  // cost. Text that it has not read it reads before the sequence's first draft.
  bool drafter_reads_prompts = false;
  // How many steps had failed (StepOutput::failure) by the time that this one was scheduled. Only
  // steps of a single rank on a GPU fail so: batch_encoding.h leaves it out.
  uint64_t num_failed_steps = 0;

  bool empty() const { return sequences.empty(); }
};

struct TokenLogprobs {
  std::vector<int32_t> token_ids;  // the actual token first, then the best in order
  std::vector<float> logprobs;
  std::vector<int32_t> ranks;  // 1: the most likely
};

struct SequenceOutput {
  SequenceId id = 0;
  // Generated tokens: none if the chunk did not sample, else one; a verify chunk brings up to one
  // more than it had drafts.
  TokenList token_ids;
  std::vector<TokenLogprobs> logprobs;  // one for each of these tokens, if asked for
  // No logit was finite, so no token could be chosen in the last place of token_ids, which holds a
  // 0.
  bool invalid_logits = false;
  std::vector<TokenLogprobs>
      prompt_logprobs;  // of the prompt tokens after each of this chunk's, if asked for
};

struct StepOutput {
  uint64_t step = 0;
  // A sentence, where the step failed for want of memory and the runner can go on. Then all of the
  // output is void, as is that of steps which were scheduled before this was known.
  std::string failure{};
  bool is_void = false;
  double gpu_s = 0;  // for which the GPU worked on it; 0 on the CPU
  // Part of its time went to what later steps of its kind find ready: it says little about theirs.
  bool is_first_of_kind = false;
  // Of the step's time, in seconds, what the runner's drafter took: for drafts, and to read text
  // that it had not read.
  double draft_s = 0;
  double draft_reading_s = 0;
  std::vector<SequenceOutput> sequences;  // in the batch's order
};

}  // namespace quire
