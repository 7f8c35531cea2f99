#include "runner/draft_slots.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void DraftSlots::forget(std::span<const int32_t> block_table, int64_t begin, int64_t end) {
  for (int64_t index = begin / block_size_; index * block_size_ < end; ++index) {
    int32_t& filled = filled_of(block_table, index);
    const int64_t kept = std::max<int64_t>(0, begin - index * block_size_);
    filled = static_cast<int32_t>(std::min<int64_t>(filled, kept));
  }
}

int64_t DraftSlots::first_missing(std::span<const int32_t> block_table, int64_t end) const {
  for (int64_t index = 0; index * block_size_ < end; ++index) {
    const auto block = static_cast<size_t>(block_table[static_cast<size_t>(index)]);
    if (filled_[block] < block_size_) return std::min(end, index * block_size_ + filled_[block]);
  }
  return end;
}

void DraftSlots::fill(std::span<const int32_t> block_table, int64_t begin, int64_t end) {
  for (int64_t index = begin / block_size_; index * block_size_ < end; ++index) {
    int32_t& filled = filled_of(block_table, index);
    check(index * block_size_ + filled >= begin || filled == block_size_,
          "a draft model's keys are filled without a gap");
    const int64_t last = std::min<int64_t>(block_size_, end - index * block_size_);
    filled = static_cast<int32_t>(std::max<int64_t>(filled, last));
  }
}

}  // namespace quire
