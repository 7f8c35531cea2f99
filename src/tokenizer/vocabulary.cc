#include "tokenizer/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>

#include "base/check.h"

namespace quire::tokenizer_internal {

std::uint32_t Vocabulary::hash_of(std::string_view token) {
  return static_cast<std::uint32_t>(XXH3_64bits(token.data(), token.size()));
}

std::size_t Vocabulary::find_slot(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  while (slots_[i].id != kNone && (slots_[i].hash != hash || text(slots_[i].id) != token)) {
    i = (i + 1) & mask;
  }
  return i;
}

void Vocabulary::grow() {
  std::vector<Slot> old(std::max<std::size_t>(1024, slots_.size() * 2));
  old.swap(slots_);
  const std::size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id == kNone) continue;
    std::size_t i = slot.hash & mask;
    while (slots_[i].id != kNone) i = (i + 1) & mask;
    slots_[i] = slot;
  }
}

Vocabulary::Added Vocabulary::add(std::string_view token, std::int32_t id) {
  if (has(id)) return Added::kDuplicateId;
  if ((count_ + 1) * 2 > slots_.size()) grow();
  const std::uint32_t hash = hash_of(token);
  const std::size_t slot = find_slot(token, hash);
  if (slots_[slot].id != kNone) return Added::kDuplicateToken;
  if (static_cast<std::size_t>(id) >= spans_.size()) spans_.resize(id + 1);
  spans_[id] = {texts_.size(), static_cast<std::uint32_t>(token.size()), true};
  texts_.append(token);
  slots_[slot] = {hash, id};
  ++count_;
  return Added::kYes;
}

std::int32_t Vocabulary::find(std::string_view token) const {
  return slots_.empty() ? kNone : slots_[find_slot(token, hash_of(token))].id;
}

void Vocabulary::find_all(std::span<const std::string_view> tokens, std::int32_t* ids) const {
  check(tokens.size() <= kMostAtOnce, "as many tokens are looked up at once as there is room for");
  if (slots_.empty()) {
    std::fill_n(ids, tokens.size(), kNone);
    return;
  }
  const std::size_t mask = slots_.size() - 1;
  std::array<std::uint32_t, kMostAtOnce> hashes;
  // What a lookup mostly reads: the first slot, then its token's place, then its text.
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    hashes[i] = hash_of(tokens[i]);
    __builtin_prefetch(&slots_[hashes[i] & mask]);
  }
  const auto first_id = [&](std::size_t i) { return slots_[hashes[i] & mask].id; };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (first_id(i) != kNone) __builtin_prefetch(&spans_[first_id(i)]);
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (first_id(i) != kNone) __builtin_prefetch(text(first_id(i)).data());
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ids[i] = slots_[find_slot(tokens[i], hashes[i])].id;
  }
}

}  // namespace quire::tokenizer_internal
