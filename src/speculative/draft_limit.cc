#include "speculative/draft_limit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace quire::speculative_internal {
namespace {

// The weight of earlier steps: about the last hundred count; of steps of like rows about the last
// twenty, which count for long once there are only others.
constexpr double kDecay = 0.98;
constexpr double kDecayOfLikes = 0.95;
constexpr double kDecayOfOthers = 0.999;
// Steps are alike whose rows differ by less than about a fifth.
constexpr double kSizesPerDoubling = 2;
// A step that something else on the machine held up counts as this many mean ones at most.
constexpr double kMostStretch = 3;
// Until steps have differed in rows: a row more takes this share of a step of one row, at most.
constexpr double kUsualShare = 0.125;
// The share of the time of steps that drafts may lose.
constexpr double kShareToLose = 0.01;
// More drafts have to bring this many times the tokens a second of fewer.
constexpr double kLeastGain = 1.001;
// Another number than the last has to bring this many times its tokens a second.
constexpr double kLeastGainOfChange = 1.02;
// The least variance of rows that tells what a row costs: in rows^2, and as a share of their mean's
// square.
constexpr double kLeastVariance = 0.01;
constexpr double kLeastVarianceShare = 0.0025;

}  // namespace

void StepCost::learn(int64_t rows, double seconds) {
  const auto x = static_cast<double>(rows);
  const double most = kMostStretch * (all_.weight > 0 ? all_.y / all_.weight : seconds);
  const double y = std::min(seconds, most);
  const auto add = [&](Sums& sums, double decay) {
    sums = {decay * sums.weight + 1, decay * sums.x + x, decay * sums.y + y};
  };
  add(all_, kDecay);
  const int size = static_cast<int>(std::lround(kSizesPerDoubling * std::log2(x)));
  for (auto& [other, sums] : by_size_) {
    if (other == size) continue;
    sums = {kDecayOfOthers * sums.weight, kDecayOfOthers * sums.x, kDecayOfOthers * sums.y};
  }
  add(by_size_[size], kDecayOfLikes);
  const Line line = line_of_steps(x);
  if (line.slope >= 0) row_s_ = line.slope;
}

StepCost::Line StepCost::line_of_steps(double rows) const {
  Sums sums;
  double xx = 0;
  double xy = 0;
  for (const auto& [size, steps] : by_size_) {
    const double mean_x = steps.x / steps.weight;
    const double doublings = std::log2(mean_x / rows);
    const double weight = steps.weight * std::exp(-doublings * doublings / 2);
    const double mean_y = steps.y / steps.weight;
    sums = {sums.weight + weight, sums.x + weight * mean_x, sums.y + weight * mean_y};
    xx += weight * mean_x * mean_x;
    xy += weight * mean_x * mean_y;
  }
  Line line{.mean_x = sums.x / sums.weight, .mean_y = sums.y / sums.weight};
  const double variance = xx / sums.weight - line.mean_x * line.mean_x;
  if (variance < std::max(kLeastVariance, kLeastVarianceShare * line.mean_x * line.mean_x)) {
    return line;
  }
  line.slope = std::max((xy / sums.weight - line.mean_x * line.mean_y) / variance, 0.0);
  return line;
}

StepCost::Line StepCost::line_near(double rows) const {
  Line line = line_of_steps(rows);
  if (line.slope < 0) line.slope = row_s_;
  if (line.slope < 0) {
    line.slope = line.mean_y * kUsualShare / (1 + kUsualShare * (line.mean_x - 1));
    if (prompt_row_s_ >= 0) line.slope = std::min(line.slope, prompt_row_s_);
  }
  // A row more takes no longer than those that were.
  line.slope = std::min(line.slope, line.mean_y / line.mean_x);
  return line;
}

double StepCost::seconds(int64_t rows) const {
  if (by_size_.empty()) return 0;
  const Line line = line_near(static_cast<double>(rows));
  return line.mean_y + line.slope * (static_cast<double>(rows) - line.mean_x);
}

double StepCost::tokens_per_row(int64_t rows) const {
  const auto n = static_cast<double>(rows);
  if (by_size_.empty()) return kUsualShare * n / (1 + kUsualShare * (n - 1));
  const double step_s = seconds(rows);
  return step_s > 0 ? std::min(line_near(n).slope * n / step_s, 1.0) : 0.0;
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

size_t worthwhile_drafts(double rate, std::span<const double> seconds) {
  size_t count = 0;
  double most_per_s = kLeastGain / seconds.front();
  double tokens = 1;  // of a sequence in a step
  double expected = rate;
  for (size_t k = 1; k < seconds.size(); ++k, expected *= rate) {
    tokens += expected;
    if (tokens <= most_per_s * seconds[k]) continue;
    most_per_s = kLeastGain * tokens / seconds[k];
    count = k;
  }
  return count;
}

size_t worthwhile_drafts(double rate, std::span<const double> seconds, size_t last) {
  const size_t best = worthwhile_drafts(rate, seconds);
  if (last == 0 || last >= seconds.size()) return best;
  const auto tokens_per_s = [&](size_t count) {
    double tokens = 1;
    double expected = rate;
    for (size_t k = 1; k <= count; ++k, expected *= rate) tokens += expected;
    return tokens / seconds[count];
  };
  const double gain = tokens_per_s(best) / tokens_per_s(last);
  return gain < kLeastGainOfChange ? last : best;
}

size_t worthwhile_drafts(double rate, double cost, size_t most) {
  std::vector<double> seconds;
  for (size_t k = 0; k <= most; ++k) seconds.push_back(1 + static_cast<double>(k) * cost);
  return worthwhile_drafts(rate, seconds);
}

}  // namespace quire::speculative_internal
