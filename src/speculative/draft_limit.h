#pragma once
// How many drafts are worth their cost: what a row of a step costs, as measured, against how often
// drafts were kept lately.
//
// A step of r rows takes a + c r seconds: reading the weights costs the same for few rows, and
// arithmetic grows with them. With n sequences a step brings n tokens at least, so c seconds are
// worth c n / (a + c n) tokens (StepCost::tokens_per_row). Where a model makes the drafts, its pass
// over n rows takes time as well, which counts likewise. The i-th draft of a sequence that keeps a
// draft with probability p brings p^i tokens. There are as many drafts as bring the most tokens in
// a second.
//
// A model also has to read the text that it drafts for, whose worth is not known before. So there
// is a ledger: what drafts cost is taken from it, what they saved is put in.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>

namespace quire::speculative_internal {

// Seconds of a step by its rows: a line through the last hundred steps or so, later ones counting
// more.
class StepCost {
 public:
  // A step of `rows` >= 1 rows, none of a prompt, took `seconds`.
  void learn(int64_t rows, double seconds);
  // The tokens that a step of `rows` decode rows, >= 1, could compute in the time of one row more:
  // 0 (rows are free) to 1 (time grows with them).
  double tokens_per_row(int64_t rows) const;
  // What a step of `rows` rows takes; 0 before any step.
  double seconds(int64_t rows) const;

 private:
  // Seconds of a row more; negative where steps have not told.
  double slope() const;
  // The line's slope where steps differ enough in their rows.
  void learn_slope();

  // Weighted sums over steps: of 1, rows, rows^2, seconds, rows * seconds.
  double weight_ = 0;
  double x_ = 0;
  double xx_ = 0;
  double y_ = 0;
  double xy_ = 0;
  double row_s_ = -1;  // seconds of a row more, when steps last told; negative: never
};

// The share of drafts that are kept, of those before which all were: a moving average.
class Acceptance {
 public:
  // `smoothing`: the weight of the newest draft.
  Acceptance(double rate, double smoothing) : rate_(rate), smoothing_(smoothing) {}
  // Of `num_drafts` drafts of a chunk the first `num_kept` were.
  void learn(size_t num_drafts, size_t num_kept);
  double rate() const { return rate_; }

 private:
  double rate_;
  double smoothing_;
};

// Time that drafts may lose: a fixed sum, a hundredth of the time of all steps, and what they
// saved. So they end where they lose more, whatever was expected of them.
class DraftLedger {
 public:
  // A step without its drafts took so long.
  void elapse(double seconds);
  // What drafts saved, less what they cost; may be negative.
  void enter(double seconds);
  bool may_draft() const { return credit_s_ > 0; }

 private:
  static constexpr double kMostCredit = 2;  // seconds
  double credit_s_ = kMostCredit;
};

// The drafts, at most `most`, with which a step brings the most tokens for its time: each costs the
// time of `cost` tokens, and is kept at that rate.
size_t worthwhile_drafts(double rate, double cost, size_t most);

}  // namespace quire::speculative_internal
