#pragma once
// What the tokens below a node of a TokenTrie do within a string of automata: remembered by the
// string's state, as walking all of a vocabulary takes about a millisecond.
//
// Thread safety: one thread at a time.
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

 private:
  static constexpr size_t kMaxBytes = 16 << 20;  // of all that are remembered

  std::map<std::tuple<uint64_t, uint32_t, int32_t>, AutomatonTokens> known_;
  size_t num_bytes_ = 0;
};

}  // namespace quire::grammar
