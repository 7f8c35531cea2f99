#pragma once
// Which constrained outputs have text that needs no choice, so that it is worth waiting for a
// step's tokens: then the text that has to follow is drafts of the next step
// (AnswerMasks::forced_tokens). They are kept where the model cuts the text into tokens as its
// tokenizer does.
//
// Waiting costs what the host does between two steps. So outputs are waited for while a fair share
// of their tokens were drafts that were kept; of the others one token in kProbeInterval is, so that
// a change is noticed. Thread safety: one thread at a time, the engine's.
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

class ForcedDrafts {
 public:
  static constexpr int kProbeInterval = 16;

  // A step brought a sequence a token, and so many drafts before it were kept. The first call for
  // an id adds it.
  void append(SequenceId id, size_t num_kept);
  // The sequence has ended. Unknown ids: no effect.
  void remove(SequenceId id);

  // Whether any sequence is worth waiting for.
  bool drafts_next() const { return num_awaited_ > 0; }
  // Those that are and got tokens since the last call.
  std::vector<SequenceId> take_ready() { return std::exchange(ready_, {}); }

 private:
  struct State {
    double share = kFirstShare;  // of its newest tokens that were drafts
    int num_passed = 0;          // steps since it was waited for
    bool awaited = false;
  };
  static constexpr double kFirstShare = 0.3;
  static constexpr double kLeastShare = 0.1;
  static constexpr double kSmoothing = 0.1;  // the weight of the newest token

  std::unordered_map<SequenceId, State> states_;
  std::vector<SequenceId> ready_;
  int num_awaited_ = 0;
};

}  // namespace quire
