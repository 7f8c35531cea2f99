#pragma once
// From token ids back to requests: text, stop strings, log-probabilities, and the outputs that the
// caller gets.
//
// One RequestState for each request; it holds its n outputs in full and gives out what OutputKind
// asks for. Thread safety: one thread at a time, the engine's.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer_masks.h"
#include "engine/stop_matcher.h"
#include "quire/tokenizer.h"
#include "request/request.h"
#include "scheduler/scheduler.h"

namespace quire {

using Clock = std::chrono::steady_clock;

// How many of a step's tokens an output took.
struct TakenTokens {
  int64_t count = 0;
  // A stop string or the answer's constraint ended the output, which the scheduler does not know.
  bool stopped = false;
};

// One of a request's n outputs.
class CompletionState {
 public:
  // `tokenizer` is null where there is none; then there is no text. It and `params` must outlive
  // this.
  CompletionState(int index, const SamplingParams& params, const Tokenizer* tokenizer);

  // Takes a step's tokens up to the one that ends the output; tokens behind a stop string are
  // dropped. `progress`: what the constraint says of these tokens.
  TakenTokens append(const SequenceUpdate& update, const AnswerProgress& progress = {});
  // Ends it from outside.
  void abort();
  bool finished() const { return output_.finish_reason.has_value(); }

  // The output to give out: everything so far, or with `delta` what is new since the last call.
  CompletionOutput take(bool delta);

 private:
  // `end`: set if the sequence ended with this token; `complete`: the answer ended with it. Returns
  // true if the output ends although the sequence does not.
  bool take_token(int32_t token_id, const std::optional<SequenceEnd>& end, bool complete);
  void finish(FinishReason reason);
  // True if a stop string was found; then the text is cut there.
  bool check_stop_strings();

  const SamplingParams& params_;
  const Tokenizer* tokenizer_;
  std::optional<IncrementalDetokenizer> detokenizer_;
  StopMatcher stops_;
  CompletionOutput output_;
  size_t text_given_ = 0;
  size_t tokens_given_ = 0;
};

// A request while it runs.
class RequestState {
 public:
  // sequence_ids: of its n sequences, by index.
  RequestState(std::shared_ptr<const Request> request, Clock::time_point arrival,
               std::vector<SequenceId> sequence_ids, const Tokenizer* tokenizer);

  const Request& request() const { return *request_; }
  const std::vector<SequenceId>& sequence_ids() const { return sequence_ids_; }

  // A step was scheduled that computes tokens of one of the n outputs and verifies `num_drafts`
  // drafts of a speculator. Called for each of these outputs; `step` identifies the step, and is
  // not 0.
  void mark_scheduled(uint64_t step, size_t num_drafts, Clock::time_point now);
  // How often output `index` was preempted so far.
  void mark_preemptions(size_t index, int64_t num_preemptions);
  // See CompletionState::append. had_forced: the step verified forced text of a constraint, not
  // drafts of a speculator.
  TakenTokens append(size_t index, const SequenceUpdate& update, Clock::time_point now,
                     const AnswerProgress& progress = {}, bool had_forced = false);
  void abort();
  // Ends the request with `error`, a sentence.
  void fail(std::string error, bool out_of_memory = false);
  bool failed() const { return !error_.empty(); }
  bool finished() const;

  // Whether the caller is to get an output now. True once for each change, so take_output() has to
  // follow.
  bool wants_output();
  RequestOutput take_output();

 private:
  std::shared_ptr<const Request> request_;
  Clock::time_point arrival_;
  std::vector<SequenceId> sequence_ids_;
  const Tokenizer* tokenizer_;
  std::vector<CompletionState> completions_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  bool prompt_given_ = false;
  int64_t num_cached_tokens_ = 0;
  std::vector<int64_t> num_preemptions_;  // of each of its n
  bool changed_ = false;
  uint64_t last_step_ = 0;  // 0: not scheduled yet
  bool has_token_ = false;
  std::string error_;
  bool out_of_memory_ = false;
  RequestMetrics metrics_;
};

// Adds each token's text. `tokenizer` may be null.
PositionLogprobs to_position_logprobs(const TokenLogprobs& logprobs, const Tokenizer* tokenizer);

}  // namespace quire
