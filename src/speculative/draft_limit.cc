#include "speculative/draft_limit.h"

#include <algorithm>

namespace quire::speculative_internal {
namespace {

// Of the steps before the newest one: about the last hundred count.
constexpr double kDecay = 0.98;
// A step that something else on the machine held up counts as this many mean ones at most.
constexpr double kMostStretch = 3;
// Until steps have differed in rows: a row more takes this share of a step of one row.
constexpr double kUsualShare = 0.125;
// The least variance of rows, in rows^2, that tells what a row costs.
constexpr double kLeastVariance = 0.01;

}  // namespace

void StepCost::learn(int64_t rows, double seconds) {
  const auto x = static_cast<double>(rows);
  const double y = weight_ > 0 ? std::min(seconds, kMostStretch * y_ / weight_) : seconds;
  weight_ = kDecay * weight_ + 1;
  x_ = kDecay * x_ + x;
  xx_ = kDecay * xx_ + x * x;
  y_ = kDecay * y_ + y;
  xy_ = kDecay * xy_ + x * y;
}

double StepCost::tokens_per_row(int64_t rows) const {
  const auto n = static_cast<double>(rows);
  const double usual = kUsualShare * n / (1 + kUsualShare * (n - 1));
  if (weight_ <= 0 || y_ <= 0) return usual;
  const double mean_x = x_ / weight_;
  const double mean_y = y_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  if (variance < kLeastVariance) return usual;
  const double slope =
      std::clamp((xy_ / weight_ - mean_x * mean_y) / variance, 0.0, mean_y / mean_x);
  const double step_s = mean_y + slope * (n - mean_x);
  return std::min(slope * n / step_s, 1.0);
}

void Acceptance::learn(size_t num_drafts, size_t num_kept) {
  for (size_t i = 0; i < num_kept; ++i) rate_ += smoothing_ * (1 - rate_);
  if (num_kept < num_drafts) rate_ -= smoothing_ * rate_;
}

size_t worthwhile_drafts(double rate, double cost, size_t most) {
  size_t count = 0;
  for (double expected = rate; count < most && expected > cost; expected *= rate) ++count;
  return count;
}

}  // namespace quire::speculative_internal
