#include "grammar/tokens/byte_matcher.h"

namespace quire::grammar {

void ByteMatcher::allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) {
  const auto nodes = trie.nodes();
  size_t depth = 0;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    pop(depth - (node.depth - 1U));
    depth = node.depth - 1U;
    if (!push(node.byte)) {
      i = node.end;
      continue;
    }
    ++depth;
    ++i;
    if (node.token == TokenTrie::kNone) continue;
    if (most_ending_bytes != kNoEnding && ending_bytes() > most_ending_bytes) continue;
    for (int32_t token = node.token; token != TokenTrie::kNone; token = trie.next_alike(token)) {
      allow(mask, token);
    }
  }
  pop(depth);
}

}  // namespace quire::grammar
