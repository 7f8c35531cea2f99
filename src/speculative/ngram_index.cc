#include "speculative/ngram_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "speculative/hash.h"

namespace quire::speculative_internal {
namespace {

constexpr size_t kFirstSlots = 64;  // a power of two, as every number of slots

}  // namespace

NgramIndex::NgramIndex(NgramLengths lengths)
    : lengths_(lengths),
      seed_(hash_seed()),
      tables_(static_cast<size_t>(lengths.max - lengths.min + 1)) {
  check(lengths.min >= 1 && lengths.min <= lengths.max, "the lengths are a range from 1");
}

void NgramIndex::append(std::span<const int32_t> token_ids) {
  for (const int32_t id : token_ids) append_one(id);
}

// Tokens at the text's end are filed only when another token follows, so that a look-up never finds
// itself.
void NgramIndex::append_one(int32_t token_id) {
  for (size_t i = 0; i < tables_.size(); ++i) {
    const size_t length = static_cast<size_t>(lengths_.min) + i;
    if (tokens_.size() >= length) file(tables_[i], tokens_.size(), length);
  }
  tokens_.push_back(token_id);
}

std::vector<int32_t> NgramIndex::continuation(size_t most) const {
  for (size_t i = tables_.size(); i-- > 0;) {
    const Table& table = tables_[i];
    const size_t length = static_cast<size_t>(lengths_.min) + i;
    if (tokens_.size() < length || table.slots.empty()) continue;
    const size_t end = table.slots[slot_of(table, tokens_.size(), length)];
    if (end == 0) continue;
    const size_t period = tokens_.size() - end;
    std::vector<int32_t> drafts(most);
    for (size_t j = 0; j < most; ++j) drafts[j] = tokens_[end + j % period];
    return drafts;
  }
  return {};
}

size_t NgramIndex::slot_of(const Table& table, size_t end, size_t length) const {
  const auto last_of = [this, length](size_t behind) {
    return std::span(tokens_).subspan(behind - length, length);
  };
  const std::span<const int32_t> wanted = last_of(end);
  uint64_t hash = seed_;
  for (const int32_t id : wanted) hash = mix_in(hash, static_cast<uint32_t>(id));
  const size_t mask = table.slots.size() - 1;
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const uint32_t found = table.slots[slot];
    if (found == 0 || std::ranges::equal(last_of(found), wanted)) return slot;
  }
}

void NgramIndex::file(Table& table, size_t end, size_t length) {
  if (3 * (table.num_entries + 1) > 2 * table.slots.size()) grow(table, length);
  uint32_t& slot = table.slots[slot_of(table, end, length)];
  table.num_entries += slot == 0 ? 1 : 0;
  slot = static_cast<uint32_t>(end);
}

void NgramIndex::grow(Table& table, size_t length) const {
  const std::vector<uint32_t> before = std::exchange(
      table.slots, std::vector<uint32_t>(std::max(kFirstSlots, 2 * table.slots.size())));
  for (const uint32_t end : before) {
    if (end != 0) table.slots[slot_of(table, end, length)] = end;
  }
}

}  // namespace quire::speculative_internal
