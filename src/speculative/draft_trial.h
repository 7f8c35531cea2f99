#pragma once
// Whether steps with drafts bring more tokens a second than steps without, as far as one has seen.
//
// What drafts are worth is computed from what rows cost (draft_limit.h). If many sequences run, a
// small error there is dear: some of them draft and all wait, and the host cannot prepare the next
// step meanwhile. So for each number of sequences from kLeastSequences on, steps without drafts are
// timed first, then steps with them. Where those were slower a token, drafts pause, and each time
// twice as long.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <map>

namespace quire::speculative_internal {

class DraftTrial {
 public:
  // Drafts of fewer sequences seldom lose.
  static constexpr size_t kLeastSequences = 64;
  // Steps that are compared, and the first and the longest pause, in steps without drafts.
  static constexpr int kPlainSteps = 4;
  static constexpr int kDraftedSteps = 8;
  static constexpr int kFewestDraftedSteps = 2;
  static constexpr int kFirstPause = 128;
  static constexpr int kLongestPause = 8192;

  // A step of `num_sequences` sequences, none of which read its prompt, brought `num_tokens` >= 1
  // tokens; its result came `seconds` after the one before.
  void learn(size_t num_sequences, size_t num_tokens, double seconds, bool has_drafts);
  // Whether the next step, of that many sequences, may have drafts.
  bool may_draft(size_t num_sequences) const;

 private:
  // Of steps of about as many sequences.
  struct Size {
    double plain_s = 0;  // a token of a step without drafts: a moving mean
    int num_plain = 0;
    double drafted_s = 0;  // of the steps of a trial
    double drafted_tokens = 0;
    int num_drafted = 0;
    int pause = kFirstPause;
    int pause_left = 0;
  };

  std::map<int, Size> sizes_;
};

}  // namespace quire::speculative_internal
