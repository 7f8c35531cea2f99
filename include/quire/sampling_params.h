#pragma once
// How the tokens of one request are chosen and when it ends. Names and meanings are vLLM's.
//
// Thread safety: a plain value.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/structured_output.h"

namespace quire {

// Called for each sampled token on the engine's worker thread, before penalties, biases and masks.
// `token_ids` is the prompt and what was generated so far. `logits` [vocab_size] may be changed in
// place: -infinity forbids a token, but some must stay finite. Must not throw. Must depend only on
// its arguments if results are to repeat.
using LogitsProcessor =
    std::function<void(std::span<const int32_t> token_ids, std::span<float> logits)>;

// quire/sampling_limits.h has the ranges.
struct SamplingParams {
  int n = 1;                 // outputs per prompt
  double temperature = 1.0;  // 0: greedy
  int top_k = 0;             // the k most likely; 0 or -1: all
  double top_p = 1.0;        // the fewest tokens whose probability reaches p
  double min_p = 0.0;        // at least this share of the best token's probability
  // Divides positive and multiplies negative logits of tokens in the prompt or the output.
  double repetition_penalty = 1.0;
  double presence_penalty = 0.0;          // subtracted once for a generated token
  double frequency_penalty = 0.0;         // subtracted for each time it was generated
  std::map<int32_t, float> logit_bias{};  // added to a token's logit
  // Tokens to generate; none: as many as max_model_len allows.
  std::optional<int64_t> max_tokens = 16;
  int64_t min_tokens = 0;  // no end-of-sequence or stop token before this many; at most max_tokens
  std::vector<std::string> stop{};        // texts that end the output
  std::vector<int32_t> stop_token_ids{};  // tokens that end the output
  bool include_stop_str_in_output = false;
  bool ignore_eos = false;          // go on after the model's end-of-sequence tokens
  bool skip_special_tokens = true;  // leave special tokens out of the text
  std::optional<uint64_t> seed{};   // none: drawn from the engine's seed and the request's number
  std::optional<int> logprobs{};    // the sampled token's, and this many of the best
  std::optional<int> prompt_logprobs{};  // the same for each prompt token after the first
  std::vector<LogitsProcessor> logits_processors{};
  std::optional<StructuredOutput> structured_output{};  // what the answer has to be

  // Throws Error naming the first field that is out of range, its value and what is expected.
  void validate() const;
};

}  // namespace quire
