#pragma once
// Decides for which constrained outputs the engine waits for a step's tokens, to draft the text
// that must follow them (AnswerMasks::forced_tokens). All these drafts are kept, as the masks in
// their places allow nothing else.
//
// Waiting costs the host's time between two steps. So an output is waited for while a good share of
// its newest tokens were kept drafts; any other output once in kProbeInterval tokens, to notice a
// change. Thread safety: one thread at a time, the engine's.
#include <cstddef>
#include <unordered_map>
#include <utility>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

class ForcedDrafts {
 public:
  static constexpr int kProbeInterval = 16;

  // A step brought a sequence one token, after `num_kept` drafts that were kept. The first call for
  // an id adds it.
  void append(SequenceId id, size_t num_kept);
  // The sequence has ended. Unknown ids: no effect.
  void remove(SequenceId id);

  // Whether any sequence is worth waiting for.
  bool drafts_next() const { return num_awaited_ > 0; }
  // Sequences that are worth waiting for and got tokens since the last call.
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
