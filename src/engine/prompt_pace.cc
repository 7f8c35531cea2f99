#include "engine/prompt_pace.h"

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr double kSmoothing = 0.3;  // the weight of the newest step in the means

}  // namespace

int64_t PromptPace::max_prompt_tokens(int64_t num_decoding) const {
  if (!has_target()) return max_tokens_;
  if (token_s_ <= 0) return kFirstChunk;
  double num_tokens = target_s_ / token_s_;
  if (num_decoding == 0) {
    num_tokens = std::max(
        num_tokens, std::min(static_cast<double>(kEfficientChunk), kIdleStretch * num_tokens));
  }
  if (num_tokens >= static_cast<double>(max_tokens_)) return max_tokens_;
  return std::max(static_cast<int64_t>(num_tokens) - num_decoding, kLeastChunk);
}

int64_t PromptPace::logprobs_cost() const {
  if (token_s_ <= 0) return 1;
  return std::lround(1 + std::min(score_s_ / token_s_, kMostLogprobsCost));
}

double PromptPace::expected_s(int64_t num_tokens, int64_t num_scored) const {
  return static_cast<double>(num_tokens) * token_s_ + static_cast<double>(num_scored) * score_s_;
}

void PromptPace::learn(int64_t num_tokens, int64_t num_scored, double seconds) {
  const double token_s = seconds / static_cast<double>(num_tokens);
  if (num_scored > 0 && token_s_ > 0 && token_s > token_s_) {
    // The rest of the step's time went to log-probabilities.
    const double beyond_s = (token_s - token_s_) * static_cast<double>(num_tokens);
    score_s_ += kSmoothing * (beyond_s / static_cast<double>(num_scored) - score_s_);
    return;
  }
  token_s_ = token_s_ > 0 ? token_s_ + kSmoothing * (token_s - token_s_) : token_s;
}

}  // namespace quire
