#include "speculative/draft_limit.h"

#include <algorithm>

namespace quire::speculative_internal {
namespace {

// The weight of earlier steps: about the last hundred count.
constexpr double kDecay = 0.98;
// A step that something else on the machine held up counts as this many mean ones at most.
constexpr double kMostStretch = 3;
// Until steps have differed in rows: a row more takes this share of a step of one row.
constexpr double kUsualShare = 0.125;
// The share of the time of steps that drafts may lose.
constexpr double kShareToLose = 0.01;
// The least variance of rows that tells what a row costs: in rows^2, and as a share of their mean's
// square.
constexpr double kLeastVariance = 0.01;
constexpr double kLeastVarianceShare = 0.0025;

}  // namespace

void StepCost::learn(int64_t rows, double seconds) {
  const auto x = static_cast<double>(rows);
  const double y = weight_ > 0 ? std::min(seconds, kMostStretch * y_ / weight_) : seconds;
  weight_ = kDecay * weight_ + 1;
  x_ = kDecay * x_ + x;
  xx_ = kDecay * xx_ + x * x;
  y_ = kDecay * y_ + y;
  xy_ = kDecay * xy_ + x * y;
  learn_slope();
}

void StepCost::learn_slope() {
  const double mean_x = x_ / weight_;
  const double variance = xx_ / weight_ - mean_x * mean_x;
  if (variance < std::max(kLeastVariance, kLeastVarianceShare * mean_x * mean_x)) return;
  row_s_ = std::max((xy_ / weight_ - mean_x * y_ / weight_) / variance, 0.0);
}

double StepCost::slope() const {
  if (weight_ <= 0 || y_ <= 0) return -1;
  return std::min(row_s_, y_ / x_);
}

double StepCost::seconds(int64_t rows) const {
  if (weight_ <= 0) return 0;
  const double mean_x = x_ / weight_;
  const double mean_y = y_ / weight_;
  const double more = static_cast<double>(rows) - mean_x;
  const double row_s = slope();
  if (row_s >= 0) return mean_y + row_s * more;
  const double usual = mean_y * kUsualShare / (1 + kUsualShare * (mean_x - 1));
  return mean_y + usual * more;
}

double StepCost::tokens_per_row(int64_t rows) const {
  const auto n = static_cast<double>(rows);
  const double row_s = slope();
  if (row_s < 0) return kUsualShare * n / (1 + kUsualShare * (n - 1));
  return std::min(row_s * n / seconds(rows), 1.0);
}

void Acceptance::learn(size_t num_drafts, size_t num_kept) {
  for (size_t i = 0; i < num_kept; ++i) rate_ += smoothing_ * (1 - rate_);
  if (num_kept < num_drafts) rate_ -= smoothing_ * rate_;
}

void DraftLedger::elapse(double seconds) {
  enter(kShareToLose * seconds);
}

void DraftLedger::enter(double seconds) {
  credit_s_ = std::min(credit_s_ + seconds, kMostCredit);
}

size_t worthwhile_drafts(double rate, double cost, size_t most) {
  size_t count = 0;
  double tokens = 1;    // of a sequence in a step
  double duration = 1;  // of the step, in those that a token takes without drafts
  for (double expected = rate; count < most; expected *= rate) {
    if (expected * duration <= cost * tokens) break;
    tokens += expected;
    duration += cost;
    ++count;
  }
  return count;
}

}  // namespace quire::speculative_internal
