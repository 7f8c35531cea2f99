#include "grammar/tokens/automaton_tokens.h"

namespace quire::grammar {
const AutomatonTokens& AutomatonTokensStore::at(const TokenTrie& trie, uint32_t node, int32_t state,
                                                StringLexer& lexer) {
  if (num_bytes_ > max_bytes_) {
    known_.clear();
    num_bytes_ = 0;
  }
  const auto found = known_.find({trie.id(), node, state});
  if (found != known_.end()) return found->second;
  AutomatonTokens tokens;
  std::vector<int32_t> inside;
  const auto nodes = trie.nodes();
  const bool is_whole = node == TokenTrie::kRoot;
  const auto end = is_whole ? static_cast<uint32_t>(nodes.size()) : nodes[node].end;
  std::vector<int32_t> states(trie.max_token_bytes() + 1, StringLexer::kDead);
  states[is_whole ? 0 : nodes[node].depth] = state;
  for (uint32_t i = is_whole ? 0 : node + 1; i < end;) {
    const TokenTrie::Node& at = nodes[i];
    const int32_t before = states[at.depth - 1U];
    const int32_t next = lexer.step(before, at.byte);
    if (next < 0) {
      if (next == StringLexer::kEnd) tokens.quotes.push_back({i, before});
      i = at.end;
      continue;
    }
    states[at.depth] = next;
    tokens.is_endless &= lexer.is_endless(next);
    for (int32_t token = at.token; token != TokenTrie::kNone; token = trie.next_alike(token)) {
      inside.push_back(token);
    }
    ++i;
  }
  tokens.inside = TokenSet(std::move(inside), trie.num_tokens());
  num_bytes_ += tokens.inside.bytes() + tokens.quotes.size() * sizeof(tokens.quotes[0]) + 128;
  return known_.emplace(std::tuple(trie.id(), node, state), std::move(tokens)).first->second;
}

}  // namespace quire::grammar
