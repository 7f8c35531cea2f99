#pragma once
// Tokens by a number that each has, so that all whose number is within bounds are allowed at once.
//
// Thread safety: immutable once made.
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class CountedTokens {
 public:
  // Allows those of `least` to `most`, both included.
  void allow(uint64_t least, uint64_t most, TokenMask mask) const;
  size_t bytes() const;

 private:
  friend class CountedTokensMaker;
  struct Bucket {
    uint32_t number = 0;
    TokenSet tokens;
  };
  std::vector<Bucket> buckets_;  // sorted by number
  TokenSet all_;
};

// Puts them together. Thread safety: one thread at a time.
class CountedTokensMaker {
 public:
  explicit CountedTokensMaker(size_t num_tokens) : num_tokens_(num_tokens) {}

  // A token may come again.
  void add(uint32_t number, int32_t token);
  CountedTokens make() &&;

 private:
  struct Some {  // one of the two
    std::vector<int32_t> few;
    std::vector<uint32_t> bits;
  };
  Some& some_of(uint32_t number);

  size_t num_tokens_;
  std::vector<Some> small_;  // by number
  std::map<uint32_t, Some> large_;
  size_t count_ = 0;
};

}  // namespace quire::grammar
