#pragma once
// How long prompts take, learnt from steps that had some, and how many of their tokens the next
// step may therefore hold: a step has a target of seconds, so that sequences that decode beside
// prompts do not wait for long.
//
// Seconds of a token, and of the log-probabilities of a prompt's token beside it, are running
// means. Thread safety: one thread at a time, the engine's.
#include <cstdint>

namespace quire {

class PromptPace {
 public:
  static constexpr int64_t kFirstChunk = 128;  // prompt tokens before any step was timed
  static constexpr int64_t kLeastChunk = 32;
  // While no sequence waits for its next token, a step has this many prompt tokens (more would not
  // make matrix products faster), if it takes at most this many times longer.
  static constexpr int64_t kEfficientChunk = 512;
  static constexpr double kIdleStretch = 4;
  // The most prompt tokens that a prompt token with log-probabilities may count as.
  static constexpr double kMostLogprobsCost = 1000;

  // `target_s`: how long a step may take; 0: any time. `max_tokens`: the most tokens of a step.
  PromptPace(double target_s, int64_t max_tokens) : target_s_(target_s), max_tokens_(max_tokens) {}

  bool has_target() const { return target_s_ > 0; }
  // How many prompt tokens the next step may hold beside the newest tokens of `num_decoding`
  // sequences.
  int64_t max_prompt_tokens(int64_t num_decoding) const;
  // How many prompt tokens in that limit a prompt token counts as if its log-probabilities are
  // asked for.
  int64_t logprobs_cost() const;
  // How long a step with prompts takes, of `num_tokens` tokens, `num_scored` of them with
  // log-probabilities; 0 before any step was timed.
  double expected_s(int64_t num_tokens, int64_t num_scored) const;
  // Of a token; 0 before any step was timed.
  double token_s() const { return token_s_; }

  // Such a step took `seconds`. `num_tokens` >= 1.
  void learn(int64_t num_tokens, int64_t num_scored, double seconds);

 private:
  double target_s_;
  int64_t max_tokens_;
  double token_s_ = 0;
  double score_s_ = 0;
};

}  // namespace quire
