#include "engine/forced_drafts.h"

namespace quire {

void ForcedDrafts::append(SequenceId id, size_t num_kept) {
  if (!waits_ || learn(id, num_kept)) ready_.push_back(id);
}

bool ForcedDrafts::learn(SequenceId id, size_t num_kept) {
  State& state = states_[id];
  for (size_t i = 0; i < num_kept; ++i) state.share += kSmoothing * (1 - state.share);
  state.share -= kSmoothing * state.share;
  const bool awaited = state.share >= kLeastShare || ++state.num_passed >= kProbeInterval;
  num_awaited_ += static_cast<int>(awaited) - static_cast<int>(state.awaited);
  state.awaited = awaited;
  if (awaited) state.num_passed = 0;
  return awaited;
}

void ForcedDrafts::remove(SequenceId id) {
  proposed_.erase(id);
  std::erase(ready_, id);
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  num_awaited_ -= static_cast<int>(found->second.awaited);
  states_.erase(found);
}

}  // namespace quire
