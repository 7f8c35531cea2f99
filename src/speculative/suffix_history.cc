#include "speculative/suffix_history.h"

#include <utility>

namespace quire::speculative_internal {

void SuffixHistory::add(const std::string& salt, std::span<const int32_t> token_ids) {
  Salt& entry = most_recent(salt);
  if (entry.newer && is_half_full(*entry.newer)) {
    forget(entry.older);
    entry.older = std::exchange(entry.newer, std::nullopt);
  }
  if (!entry.newer) {
    entry.newer.emplace(limits_.depth);
    bytes_ += entry.newer->tree.bytes();
  }
  SuffixTree& tree = entry.newer->tree;
  bytes_ -= tree.bytes();
  for (const int32_t id : token_ids) tree.append(id);
  tree.end_text();
  bytes_ += tree.bytes();
  ++entry.newer->num_answers;
  ++num_answers_;
  while (num_answers_ > limits_.max_answers || bytes_ > limits_.max_bytes) forget_oldest();
}

SuffixDrafts SuffixHistory::after(const std::string& salt, std::span<const int32_t> token_ids,
                                  const SuffixLimits& limits) const {
  SuffixDrafts best;
  const auto entry = by_name_.find(salt);
  if (entry == by_name_.end()) return best;
  for (const auto* generation : {&entry->second->newer, &entry->second->older}) {
    if (!*generation) continue;
    SuffixDrafts drafts = (*generation)->tree.after(token_ids, limits);
    if (drafts.score > best.score) best = std::move(drafts);
  }
  return best;
}

SuffixHistory::Salt& SuffixHistory::most_recent(const std::string& name) {
  const auto entry = by_name_.find(name);
  if (entry == by_name_.end()) {
    salts_.push_front({.name = name});
    by_name_.emplace(name, salts_.begin());
  } else {
    salts_.splice(salts_.begin(), salts_, entry->second);
  }
  return salts_.front();
}

bool SuffixHistory::is_half_full(const Generation& generation) const {
  return 2 * generation.num_answers >= limits_.max_answers ||
         4 * generation.tree.bytes() >= limits_.max_bytes;
}

void SuffixHistory::forget(std::optional<Generation>& generation) {
  if (!generation) return;
  num_answers_ -= generation->num_answers;
  bytes_ -= generation->tree.bytes();
  generation.reset();
}

void SuffixHistory::forget_oldest() {
  Salt& salt = salts_.back();
  forget(salt.older ? salt.older : salt.newer);
  if (salt.newer) return;
  by_name_.erase(salt.name);
  salts_.pop_back();
}

}  // namespace quire::speculative_internal
