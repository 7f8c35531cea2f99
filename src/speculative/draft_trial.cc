#include "speculative/draft_trial.h"

#include <algorithm>
#include <cmath>

namespace quire::speculative_internal {
namespace {

// The weight of the newest step in the mean of those without drafts.
constexpr double kSmoothing = 0.1;
// Drafts that lose less than this may be luck.
constexpr double kLeastLoss = 1.01;
// A few steps that lose as much are enough.
constexpr double kClearLoss = 1.2;

// Numbers of sequences are alike that differ by less than about a fifth.
int size_of(size_t num_sequences) {
  return static_cast<int>(std::lround(2 * std::log2(static_cast<double>(num_sequences))));
}

}  // namespace

void DraftTrial::learn(size_t num_sequences, size_t num_tokens, double seconds, bool has_drafts) {
  if (num_sequences < kLeastSequences) return;
  Size& size = sizes_[size_of(num_sequences)];
  const auto tokens = static_cast<double>(num_tokens);
  if (!has_drafts) {
    const double weight = std::max(kSmoothing, 1.0 / ++size.num_plain);
    size.plain_s += weight * (seconds / tokens - size.plain_s);
    size.pause_left = std::max(0, size.pause_left - 1);
    return;
  }
  size.drafted_s += seconds;
  size.drafted_tokens += tokens;
  ++size.num_drafted;
  const auto loses_by = [&](double loss) {
    return size.drafted_s > loss * size.plain_s * size.drafted_tokens;
  };
  const bool is_clear = size.num_drafted >= kFewestDraftedSteps && loses_by(kClearLoss);
  if (size.num_drafted < kDraftedSteps && !is_clear) return;
  const bool loses = loses_by(kLeastLoss);
  size.pause_left = loses ? size.pause : 0;
  size.pause = loses ? std::min(2 * size.pause, kLongestPause) : kFirstPause;
  size.drafted_s = size.drafted_tokens = 0;
  size.num_drafted = 0;
}

bool DraftTrial::may_draft(size_t num_sequences) const {
  if (num_sequences < kLeastSequences) return true;
  const auto size = sizes_.find(size_of(num_sequences));
  return size != sizes_.end() && size->second.num_plain >= kPlainSteps &&
         size->second.pause_left == 0;
}

}  // namespace quire::speculative_internal
