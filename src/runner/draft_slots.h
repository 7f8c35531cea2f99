#pragma once
// Which slots of the KV blocks hold a draft model's keys and values of the tokens that the
// sequences have there.
//
// A draft model has a cache of its own with the blocks of the model that it drafts for, so block
// tables, shared prefixes and preemption are those of the model. It may lag behind: it does not run
// while drafts are not worth their cost. So for each block it is known how many of its first slots
// are filled. A step writes a sequence's next tokens, and so says that what was drafted there, or
// was there before the block was given away, counts no more; blocks that a sequence shares are not
// written, and stay filled. Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <vector>

namespace quire {

class DraftSlots {
 public:
  DraftSlots(int64_t num_blocks, int block_size)
      : block_size_(block_size), filled_(static_cast<size_t>(num_blocks)) {}

  // Positions [begin, end) of the sequence with this block table get other tokens. begin < end.
  void forget(std::span<const int32_t> block_table, int64_t begin, int64_t end);
  // The first position below `end` that is not filled; `end` if all are.
  int64_t first_missing(std::span<const int32_t> block_table, int64_t end) const;
  // Positions [begin, end) are filled; those before are already. begin < end.
  void fill(std::span<const int32_t> block_table, int64_t begin, int64_t end);

 private:
  int32_t& filled_of(std::span<const int32_t> block_table, int64_t index) {
    return filled_[static_cast<size_t>(block_table[static_cast<size_t>(index)])];
  }

  int block_size_;
  std::vector<int32_t> filled_;  // by block: its first slots that are
};

}  // namespace quire
