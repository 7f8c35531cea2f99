#include "grammar/tokens/byte_matcher.h"

#include <algorithm>

namespace quire::grammar {

size_t ByteMatcher::allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) {
  return allow_nodes(trie, 0, trie.nodes().size(), most_ending_bytes, mask);
}

size_t ByteMatcher::allow_nodes(const TokenTrie& trie, size_t begin, size_t end,
                                size_t most_ending_bytes, TokenMask mask) {
  size_t longest = most_ending_bytes == kNoEnding ? kNoEnding : 0;
  if (begin == end) return longest;
  const auto nodes = trie.nodes();
  const size_t first_depth = nodes[begin].depth - 1U;
  size_t depth = first_depth;
  for (size_t i = begin; i < end;) {
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
    if (most_ending_bytes != kNoEnding) {
      const size_t ending = ending_bytes();
      if (ending > most_ending_bytes) continue;
      longest = std::max(longest, ending);
    }
    trie.allow_node(node, mask);
  }
  pop(depth - first_depth);
  return longest;
}

size_t ByteMatcher::allow_below(const TokenTrie& trie, std::span<const uint32_t> roots,
                                size_t most_ending_bytes, TokenMask mask) {
  size_t longest = most_ending_bytes == kNoEnding ? kNoEnding : 0;
  std::string_view path;  // that has been pushed
  size_t end = 0;
  for (const uint32_t root : roots) {
    if (root < end) continue;
    end = trie.nodes()[root].end;
    const std::string_view to = trie.path(root).substr(0, trie.nodes()[root].depth - 1U);
    const size_t shared = common_prefix(path, to);
    pop(path.size() - shared);
    size_t taken = shared;
    while (taken < to.size() && push(static_cast<uint8_t>(to[taken]))) ++taken;
    path = to.substr(0, taken);
    if (taken != to.size()) continue;
    longest = std::max(longest, allow_nodes(trie, root, end, most_ending_bytes, mask));
  }
  pop(path.size());
  return longest;
}

}  // namespace quire::grammar
