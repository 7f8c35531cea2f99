#include "engine/forced_drafts.h"

namespace quire {

void ForcedDrafts::append(SequenceId id, size_t num_tokens, size_t num_forced) {
  State& state = states_[id];
  for (size_t i = 0; i < num_tokens; ++i) {
    const double newest = i < num_forced ? 1 : 0;
    state.share += kSmoothing * (newest - state.share);
  }
  const bool awaited = state.share >= kLeastShare;
  num_awaited_ += static_cast<int>(awaited) - static_cast<int>(state.awaited);
  state.awaited = awaited;
  if (awaited) ready_.push_back(id);
}

void ForcedDrafts::remove(SequenceId id) {
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  num_awaited_ -= static_cast<int>(found->second.awaited);
  states_.erase(found);
  std::erase(ready_, id);
}

}  // namespace quire
