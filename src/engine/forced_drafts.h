#pragma once
// Decides for which constrained outputs the engine asks for text that must follow
// (AnswerMasks::forced_tokens), and knows which of the scheduler's drafts are such text. All these
// drafts are kept, as the masks in their places allow nothing else.
//
// Where the engine waits for a step's tokens to draft behind them, that costs the host's time
// between two steps. So an output is waited for while a good share of its newest tokens were kept
// drafts; any other output once in kProbeInterval tokens, to notice a change. Where it does not
// wait, it asks for each output that got tokens.
//
// Thread safety: one thread at a time, the engine's.
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

class ForcedDrafts {
 public:
  static constexpr int kProbeInterval = 16;

  explicit ForcedDrafts(bool waits = true) : waits_(waits) {}

  // A step brought a sequence one token, after `num_kept` drafts of its forced text. The first call
  // for an id adds it.
  void append(SequenceId id, size_t num_kept);
  // The sequence has ended. Unknown ids: no effect.
  void remove(SequenceId id);

  // Whether any sequence is worth waiting for.
  bool drafts_next() const { return num_awaited_ > 0; }
  // Sequences that are worth asking for and got tokens since the last call.
  std::vector<SequenceId> take_ready() { return std::exchange(ready_, {}); }

  // The scheduler was given forced text of a sequence.
  void propose(SequenceId id) { proposed_.insert(id); }
  // Whether a sequence's drafts are forced text: they run now, or others take their place.
  bool take_proposed(SequenceId id) { return proposed_.erase(id) > 0; }

 private:
  struct State {
    double share = kFirstShare;  // of its newest tokens that were drafts
    int num_passed = 0;          // steps since it was waited for
    bool awaited = false;
  };
  static constexpr double kFirstShare = 0.3;
  static constexpr double kLeastShare = 0.1;
  static constexpr double kSmoothing = 0.1;  // the weight of the newest token

  // Enters a step's tokens; returns whether the sequence is worth waiting for.
  bool learn(SequenceId id, size_t num_kept);

  bool waits_;
  std::unordered_map<SequenceId, State> states_;  // where it waits
  std::vector<SequenceId> ready_;
  std::unordered_set<SequenceId> proposed_;
  int num_awaited_ = 0;
};

}  // namespace quire
