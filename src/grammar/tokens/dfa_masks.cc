#include "grammar/tokens/dfa_masks.h"

#include <algorithm>

namespace quire::grammar {
namespace {

void add_children(const TokenTrie& trie, size_t node, const DfaMasks::Bytes& bytes,
                  std::vector<uint32_t>& children) {
  const auto nodes = trie.nodes();
  for (size_t child = node + 1; child < nodes[node].end; child = nodes[child].end) {
    if (bytes[nodes[child].byte]) children.push_back(static_cast<uint32_t>(child));
  }
}

}  // namespace

template <typename Make>
DfaMasks::MasksPtr DfaMasks::find_or_make(uint64_t key, const TokenTrie& trie, Make make) {
  if (MasksPtr found = find(key, trie.id())) return found;
  auto masks = std::make_shared<Masks>();
  masks->tokens.resize(mask_words(trie.num_tokens()));
  make(*masks);
  masks->exits.shrink_to_fit();
  keep(key, trie.id(), masks);
  return masks;
}

DfaMasks::MasksPtr DfaMasks::get(const Dfa& dfa, int32_t state, const TokenTrie& trie,
                                 uint32_t number, const Bytes& next_bytes) {
  const uint64_t key = uint64_t{number} << 32 | static_cast<uint32_t>(state);
  return find_or_make(key, trie, [&](Masks& masks) {
    const bool has_exits = next_bytes.any();
    walk_dfa(dfa, state, trie, [&](const TokenTrie::Node& node, size_t i, int32_t at) {
      trie.allow_node(node, masks.tokens);
      if (has_exits && dfa.accepts(at)) add_children(trie, i, next_bytes, masks.exits);
      return true;
    });
    std::ranges::sort(masks.exits);
  });
}

DfaMasks::MasksPtr DfaMasks::get_before_end(const Dfa& dfa, int32_t state, const TokenTrie& trie) {
  constexpr uint64_t kKey = uint64_t{UINT32_MAX - 1} << 32;
  return find_or_make(kKey | static_cast<uint32_t>(state), trie, [&](Masks& masks) {
    walk_dfa(dfa, state, trie, [&](const TokenTrie::Node& node, size_t i, int32_t at) {
      if (dfa.accepts(at)) {
        masks.exits.push_back(static_cast<uint32_t>(i));
        return false;
      }
      trie.allow_node(node, masks.tokens);
      return true;
    });
  });
}

DfaMasks::MasksPtr DfaMasks::find(uint64_t key, uint64_t trie) {
  const std::scoped_lock lock(mutex_);
  if (trie != trie_) return nullptr;
  const auto found = masks_.find(key);
  return found == masks_.end() ? nullptr : found->second;
}

void DfaMasks::keep(uint64_t key, uint64_t trie, const MasksPtr& masks) {
  const size_t bytes =
      (masks->tokens.size() + masks->exits.size()) * sizeof(uint32_t) + sizeof(Masks);
  const std::scoped_lock lock(mutex_);
  if (trie != trie_ || bytes_ + bytes > kMostBytes) {
    masks_.clear();
    bytes_ = 0;
    trie_ = trie;
  }
  if (masks_.emplace(key, masks).second) bytes_ += bytes;
}

void allow_all(std::span<const uint32_t> tokens, TokenMask mask) {
  for (size_t i = 0; i < tokens.size(); ++i) mask[i] |= tokens[i];
}

}  // namespace quire::grammar
