#include "speculative/ngram_proposer.h"

#include "base/check.h"

namespace quire {

void NgramProposer::add(SequenceId id, const Request& request) {
  const auto [entry, is_new] = indices_.try_emplace(id, speculative_internal::NgramIndex(lengths_));
  check(is_new, "a sequence is added once");
  entry->second.append(request.prompt_token_ids);
}

void NgramProposer::append(SequenceId id, std::span<const int32_t> token_ids) {
  indices_.at(id).append(token_ids);
}

bool NgramProposer::has_drafts(SequenceId id) const {
  return !indices_.at(id).continuation(1).empty();
}

std::vector<int32_t> NgramProposer::propose(SequenceId id, size_t most) {
  return indices_.at(id).continuation(most);
}

void NgramProposer::remove(SequenceId id) {
  indices_.erase(id);
}

}  // namespace quire
