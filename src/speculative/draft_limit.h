#pragma once
// How many drafts are worth their cost: the measured cost of a row in a step against how often
// drafts were kept lately.
//
// A step of about r rows takes a + c r seconds: reading the weights costs the same for few rows,
// arithmetic grows with them. So with n sequences, each of which has k drafts, a step takes as long
// as those of n (1 + k) rows took (StepCost), and as k passes over n rows of a model that makes the
// drafts. The i-th draft of a sequence that keeps a draft with probability p brings p^i tokens. The
// number of drafts is the one that brings the most tokens a second.
//
// A draft model must also read the text that it drafts for, before the worth of that is known. So
// there is a ledger: the cost of drafts is taken from it, what they saved is paid in.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace quire::speculative_internal {

// Seconds of a step by its rows: near any number of rows a line, through steps of about as many.
// Few rows cost little where weights are read for all of them, many cost arithmetic, so steps whose
// rows are a multiple or a fraction count less. Of steps of like rows later ones count more.
class StepCost {
 public:
  // A step of `rows` >= 1 rows, none of a prompt, took `seconds`.
  void learn(int64_t rows, double seconds);
  // Prompts take `seconds` a token. Their steps have so many rows that arithmetic takes the time,
  // so until steps without a prompt differ in rows, a row more is taken to cost no more than that.
  void learn_prompts(double seconds) { prompt_row_s_ = seconds; }
  // How many tokens a step of `rows` decode rows, >= 1, could compute in the time of one more row:
  // 0 (rows are free) to 1 (time grows with them).
  double tokens_per_row(int64_t rows) const;
  // Seconds of a step of `rows` rows; 0 before any step.
  double seconds(int64_t rows) const;

 private:
  // Weighted sums over steps: of 1, rows, seconds.
  struct Sums {
    double weight = 0;
    double x = 0;
    double y = 0;
  };
  struct Line {
    double mean_x = 0;
    double mean_y = 0;
    double slope = -1;  // seconds of one more row; of line_of_steps() negative if they do not tell
  };

  // The line near `rows`, by the steps alone. There are some.
  Line line_of_steps(double rows) const;
  // The same with what was told before, or else a guess, where the steps do not tell.
  Line line_near(double rows) const;

  std::map<int, Sums> by_size_;  // steps of like rows
  Sums all_;
  double row_s_ = -1;         // seconds of a row more, when steps last told; negative: never
  double prompt_row_s_ = -1;  // negative: not known
};

// The probability that a draft is kept if all before it were: a moving average.
class Acceptance {
 public:
  // `smoothing`: the weight of the newest draft.
  Acceptance(double rate, double smoothing) : rate_(rate), smoothing_(smoothing) {}
  // `num_drafts` drafts of a chunk were verified, and the first `num_kept` kept.
  void learn(size_t num_drafts, size_t num_kept);
  double rate() const { return rate_; }

 private:
  double rate_;
  double smoothing_;
};

// Time that drafts may lose: a fixed sum, a hundredth of the time of all steps, and the time that
// they saved. So drafts that lose more are stopped, whatever was expected of them.
class DraftLedger {
 public:
  // A step took this long, without its drafts.
  void elapse(double seconds);
  // What drafts saved, less what they cost; may be negative.
  void enter(double seconds);
  bool may_draft() const { return credit_s_ > 0; }

 private:
  static constexpr double kMostCredit = 2;  // seconds
  double credit_s_ = kMostCredit;
};

// The number of drafts of each sequence with which a step brings the most tokens for its time:
// seconds[k] of one in which each has k, for k from 0 on; a draft is kept with probability `rate`.
size_t worthwhile_drafts(double rate, std::span<const double> seconds);
// The same, but it stays at `last`, if that is not 0, where another number would bring hardly more.
size_t worthwhile_drafts(double rate, std::span<const double> seconds, size_t last);
// The first with at most `most` drafts, each of which costs the time of `cost` tokens.
size_t worthwhile_drafts(double rate, double cost, size_t most);

}  // namespace quire::speculative_internal
