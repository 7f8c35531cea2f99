#pragma once
// What the tokens below a node of a TokenTrie do within a string of automata: remembered by the
// string's state, as walking all of a vocabulary takes about a millisecond.
//
// Thread safety: one thread at a time, but for limit() and bytes(), which any thread may call.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "grammar/tokens/counted_tokens.h"
#include "grammar/tokens/string_lexer.h"
#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

struct AutomatonTokens {
  // A node that closes the string, the string's state before it, and the characters that have
  // begun up to there.
  struct Quote {
    uint32_t node = 0;
    int32_t lexer = 0;
    uint32_t num_characters = 0;
  };
  // Tokens that leave one of the state's targets possible, by the characters that such a text has
  // then at least beside those before the token.
  struct Limited {
    uint32_t source = 0;  // StringLexer::for_each_limit()'s
    CountedTokens tokens;
  };
  TokenSet inside;               // where lengths have no limit
  std::vector<Limited> limited;  // where they have one
  std::vector<Quote> quotes;
  bool is_endless = true;  // many texts may follow wherever a token leads
};

// Walks the nodes below `node` (TokenTrie::kRoot: all) as far as the string goes on, and calls
// visit(index, state before the node's byte, state behind it), the latter never StringLexer::kDead.
// What is behind the closing quote is left out, and so is what is behind a node for which it
// returns false. Nodes are left out, too, where all tokens through them are of the groups `known`.
template <typename Visit>
void walk_string(const TokenTrie& trie, uint32_t node, int32_t state, StringLexer& lexer,
                 ByteGroups known, const Visit& visit) {
  const auto nodes = trie.nodes();
  const bool is_whole = node == TokenTrie::kRoot;
  const auto end = is_whole ? static_cast<uint32_t>(nodes.size()) : nodes[node].end;
  std::vector<int32_t> states(trie.max_token_bytes() + 1, StringLexer::kDead);
  states[is_whole ? 0 : nodes[node].depth] = state;
  for (uint32_t i = is_whole ? 0 : node + 1; i < end;) {
    const TokenTrie::Node& at = nodes[i];
    if ((trie.groups_through(i) & ~known) == 0) {
      i = at.end;
      continue;
    }
    const int32_t before = states[at.depth - 1U];
    const int32_t next = lexer.step(before, at.byte);
    states[at.depth] = next;
    const bool goes_on = next != StringLexer::kDead && visit(i, before, next);
    i = goes_on && next >= 0 ? i + 1 : at.end;
  }
}

class AutomatonTokensStore {
 public:
  // Valid until the next call. `is_limited`: `state` is without_limits() of one with limits.
  const AutomatonTokens& at(const TokenTrie& trie, uint32_t node, int32_t state, StringLexer& lexer,
                            bool is_limited);

  // Bytes of all that is remembered. Where there are more, the next call of at() forgets it all.
  void limit(size_t max_bytes) { max_bytes_ = max_bytes; }
  size_t max_bytes() const { return max_bytes_; }
  size_t bytes() const { return num_bytes_; }

 private:
  std::atomic<size_t> max_bytes_ = 0;
  std::map<std::tuple<uint64_t, uint32_t, int32_t, bool>, AutomatonTokens> known_;
  std::atomic<size_t> num_bytes_ = 0;
};

}  // namespace quire::grammar
