#pragma once
// What the tokens below a node of a TokenTrie do within a string of automata: remembered by the
// string's state, as walking all of a vocabulary takes about a millisecond.
//
// Thread safety: one thread at a time, but for limit(), which any thread may call.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "grammar/tokens/string_lexer.h"
#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

struct AutomatonTokens {
  // A node that closes the string, and the string's state before it.
  struct Quote {
    uint32_t node = 0;
    int32_t lexer = 0;
  };
  TokenSet inside;
  std::vector<Quote> quotes;
  bool is_endless = true;  // many texts may follow wherever a token leads
};

class AutomatonTokensStore {
 public:
  // Valid until the next call.
  const AutomatonTokens& at(const TokenTrie& trie, uint32_t node, int32_t state,
                            StringLexer& lexer);

  // Bytes of all that is remembered. Where there are more, the next call of at() forgets it all.
  void limit(size_t max_bytes) { max_bytes_ = max_bytes; }
  size_t max_bytes() const { return max_bytes_; }
  size_t bytes() const { return num_bytes_; }

 private:
  std::atomic<size_t> max_bytes_ = 0;
  std::map<std::tuple<uint64_t, uint32_t, int32_t>, AutomatonTokens> known_;
  size_t num_bytes_ = 0;
};

}  // namespace quire::grammar
