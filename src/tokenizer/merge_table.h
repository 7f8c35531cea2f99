#pragma once
// BPE's merges: which pairs of tokens join, in which order, to which token. A flat hash table,
// since every merge of every word looks here. Built once, then read by any thread.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace quire::tokenizer_internal {

struct Merge {
  static constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t rank = kNoRank;  // lower ranks merge first; kNoRank: the pair does not merge
  std::int32_t id = -1;          // the token that the pair becomes
};

class MergeTable {
 public:
  // Makes room for so many pairs. Called before the first set().
  void reserve(std::size_t pairs);

  // A later merge of the same pair replaces the earlier one, as in Hugging Face's library.
  void set(std::int32_t left, std::int32_t right, Merge merge);

  // Asks for the memory that set() of the pair is to write.
  void prefetch(std::int32_t left, std::int32_t right) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[first_slot_of(left, right)], 1);
  }

  struct Entry {
    std::int32_t left = -1;
    std::int32_t right = -1;
    Merge merge;
  };
  // All pairs, in no order.
  std::vector<Entry> entries() const;

  // The merge of the pair; its rank is kNoRank when there is none.
  Merge find(std::int32_t left, std::int32_t right) const {
    if (slots_.empty()) return {};
    return slots_[slot_of(left, right)].merge;
  }

 private:
  using Slot = Entry;  // left is -1: empty

  // Where the search for a pair begins.
  std::size_t first_slot_of(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
                              static_cast<std::uint32_t>(right);
    // Multiplying by 2^64 over the golden ratio spreads the keys over the top bits (Knuth, 6.4).
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
  }

  std::size_t slot_of(std::int32_t left, std::int32_t right) const {
    std::size_t i = first_slot_of(left, right);
    const std::size_t mask = slots_.size() - 1;
    while (slots_[i].left != -1 && (slots_[i].left != left || slots_[i].right != right)) {
      i = (i + 1) & mask;
    }
    return i;
  }
  // To so many slots, a power of two.
  void resize(std::size_t slots);

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t count_ = 0;
  int shift_ = 0;  // 64 - log2(slots)
};

}  // namespace quire::tokenizer_internal
