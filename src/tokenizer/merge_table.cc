#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

namespace quire::tokenizer_internal {

void MergeTable::resize(std::size_t slots) {
  std::vector<Slot> old(slots);
  old.swap(slots_);
  shift_ = 64 - std::countr_zero(slots);
  for (const Slot& slot : old) {
    if (slot.left != -1) slots_[slot_of(slot.left, slot.right)] = slot;
  }
}

void MergeTable::reserve(std::size_t pairs) {
  resize(std::bit_ceil(std::max<std::size_t>(1024, pairs * 2)));
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  if ((count_ + 1) * 2 > slots_.size()) resize(std::max<std::size_t>(1024, slots_.size() * 2));
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left == -1) ++count_;
  slot = {left, right, merge};
}

std::vector<MergeTable::Entry> MergeTable::entries() const {
  std::vector<Entry> result;
  result.reserve(count_);
  for (const Slot& slot : slots_) {
    if (slot.left != -1) result.push_back(slot);
  }
  return result;
}

}  // namespace quire::tokenizer_internal
