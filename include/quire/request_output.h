#pragma once
// What the engine returns for a request. Thread safety: plain values.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// What the outputs of a request hold.
enum class OutputKind {
  kCumulative,  // each output has everything so far
  kDelta,       // each output has what is new: text, token_ids and logprobs
  kFinalOnly,   // one output, when the request has finished
};

enum class FinishReason {
  kStop,    // an end-of-sequence token, a stop token, a stop string, or a complete answer
  kLength,  // max_tokens or max_model_len
  kAbort,   // aborted, or it failed (RequestOutput::error)
};
// "stop", "length", "abort".
std::string_view to_string(FinishReason reason);

struct Logprob {
  int32_t token_id = 0;
  float logprob = 0.0f;       // natural logarithm
  int rank = 0;               // 1: the most likely
  std::string decoded_token;  // the token's text; empty without a tokenizer
};
// For one position: the actual token first, then the most likely in order.
using PositionLogprobs = std::vector<Logprob>;

struct CompletionOutput {
  int index = 0;  // within n
  std::string text;
  std::vector<int32_t> token_ids;  // includes the end-of-sequence or stop token that ended it
  std::vector<PositionLogprobs> logprobs;     // one for each token, if asked for
  std::optional<FinishReason> finish_reason;  // none while it runs
  std::string stop_reason;  // the stop string, or the stop token's id in decimal; empty otherwise
  // SamplingParams::structured_output: tokens were chosen so that the answer ends within max_tokens
  // and max_model_len. The finish_reason is then kLength, unless a stop ended the answer.
  bool steered_to_end = false;
};

struct RequestMetrics {
  double queue_s = 0;  // from arrival to the first time it was scheduled
  double ttft_s = 0;   // from arrival to the first token
  double total_s = 0;  // from arrival to the last token so far
  // Steps that computed tokens of any of the n outputs. A step that was scheduled before a stop was
  // known counts, too.
  int64_t num_steps = 0;
  int64_t num_preemptions = 0;  // times that one of its n gave its KV blocks up
  // Speculative decoding: chunks of drafts that steps verified, their tokens, and those kept.
  int64_t num_drafts = 0;
  int64_t num_draft_tokens = 0;
  int64_t num_accepted_draft_tokens = 0;
  // Tokens that a constraint forced and that came beside a step's sampled token. They are no drafts
  // of speculative decoding.
  int64_t num_forced_tokens = 0;
};

struct RequestOutput {
  std::string request_id;
  // With kDelta only the first output of a request has the prompt.
  std::string prompt;  // empty for prompts given as token ids
  std::vector<int32_t> prompt_token_ids;
  // If asked for: one for each prompt token; the first token's is empty.
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<CompletionOutput> outputs;  // n of them, in order of index
  int64_t num_cached_tokens = 0;          // prompt tokens found in the prefix cache
  bool finished = false;                  // all n have ended
  // A sentence: why the request failed; empty if it did not. If it failed, all n end with kAbort.
  std::string error;
  bool out_of_memory = false;  // it failed for want of a GPU's memory: later it may not
  RequestMetrics metrics;
};

}  // namespace quire
