#pragma once
// Where the newest tokens of a growing text occurred earlier in it.
//
// For each length n of a range, every n tokens that are followed by something are stored under a
// hash, with the place of their last occurrence. A token costs one entry for each length; an entry
// is 4 bytes in a table that is at most two thirds full. So a text of t tokens takes 4 t bytes, and
// up to 12 t more for each length.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "speculative/proposer.h"

namespace quire::speculative_internal {

class NgramIndex {
 public:
  // 1 <= lengths.min <= lengths.max.
  explicit NgramIndex(NgramLengths lengths);

  void append(std::span<const int32_t> token_ids);

  // Up to `most` tokens that followed the last earlier occurrence of the longest suffix, within the
  // range of lengths, that has one; none if none has. At the end of the text they continue as if
  // the text repeated itself with that period.
  std::vector<int32_t> continuation(size_t most) const;

 private:
  // The table of one length. A slot holds the end of an occurrence, the index behind its last
  // token; 0: none.
  struct Table {
    std::vector<uint32_t> slots;
    size_t num_entries = 0;
  };

  void append_one(int32_t token_id);
  // The slot of the `length` tokens that end at `end`: theirs, or the empty one for them.
  size_t slot_of(const Table& table, size_t end, size_t length) const;
  void file(Table& table, size_t end, size_t length);
  void grow(Table& table, size_t length) const;

  NgramLengths lengths_;
  uint64_t seed_;  // of hashes
  std::vector<int32_t> tokens_;
  std::vector<Table> tables_;  // [length - lengths_.min]
};

}  // namespace quire::speculative_internal
