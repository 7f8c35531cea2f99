#pragma once
// Tokens by a number that each has, so that all whose number is within bounds are allowed at once.
//
// Thread safety: immutable once made.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class CountedTokens {
 public:
  struct Token {
    uint32_t number = 0;
    int32_t token = 0;
  };

  CountedTokens() = default;
  CountedTokens(std::span<const Token> tokens, size_t num_tokens);

  // Allows those of `least` to `most`, both included.
  void allow(uint64_t least, uint64_t most, TokenMask mask) const;
  size_t bytes() const;

 private:
  struct Bucket {
    uint32_t number = 0;
    TokenSet tokens;
  };
  std::vector<Bucket> buckets_;  // sorted by number
  TokenSet all_;
};

}  // namespace quire::grammar
