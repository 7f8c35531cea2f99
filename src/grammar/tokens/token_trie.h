#pragma once
// The tokens of a vocabulary as a tree of their bytes, which a constraint walks to find those that
// may come next.
//
// Thread safety: immutable once made.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/tokens/byte_groups.h"
#include "grammar/tokens/text_kind.h"

namespace quire::grammar {

class StringTokens;
class StringTokensStore;

// How many bytes both begin with.
size_t common_prefix(std::string_view a, std::string_view b);

class TokenTrie {
 public:
  static constexpr int32_t kNone = -1;

  // In preorder: the children of a node follow it, up to its `end`.
  struct Node {
    uint32_t end = 0;       // the index behind its subtree
    int32_t token = kNone;  // the first token that ends here; next_alike() has the others
    uint16_t depth = 0;     // bytes from the root to behind this one
    uint8_t byte = 0;
    bool is_shared = false;  // more than one token ends here
  };

  // What is below a node: all of it is text of `kind` behind the node, of at most `most_bytes`.
  struct Below {
    uint32_t first_token = 0;  // in preorder, where the node's own come first
    uint16_t most_bytes = 0;
    TextKind kind = TextKind::kOther;
    ByteGroups groups = 0;  // of its bytes
  };

  // The bytes of each token, by its id. Tokens without bytes (special ones, ids that are no token)
  // are in no mask. Throws Error for a token of more than 65,535 bytes.
  explicit TokenTrie(std::vector<std::string> tokens);
  ~TokenTrie();
  TokenTrie(const TokenTrie&) = delete;
  TokenTrie& operator=(const TokenTrie&) = delete;

  // Of no other trie of this process; never 0.
  uint64_t id() const { return id_; }
  size_t num_tokens() const { return tokens_.size(); }
  size_t max_token_bytes() const { return max_token_bytes_; }
  std::string_view bytes(int32_t token) const { return tokens_[static_cast<size_t>(token)]; }
  std::span<const Node> nodes() const { return nodes_; }
  // Another token of the same bytes, or kNone.
  int32_t next_alike(int32_t token) const { return alike_[static_cast<size_t>(token)]; }
  // Calls visit(token) for all tokens that end at the node.
  template <typename Visit>
  void for_each_token(const Node& node, const Visit& visit) const {
    if (node.token == kNone) return;
    visit(node.token);
    if (!node.is_shared) return;
    for (int32_t token = next_alike(node.token); token != kNone; token = next_alike(token)) {
      visit(token);
    }
  }
  // Sets the bits of the tokens that end at the node.
  void allow_node(const Node& node, std::span<uint32_t> mask) const;
  // The bytes up to behind a node.
  std::string_view path(size_t node) const;

  // The index of the node that `byte` leads to from the node of index `node`, or from
  // the root where that is kRoot; kNoNode if there is none.
  static constexpr uint32_t kRoot = UINT32_MAX;
  static constexpr uint32_t kNoNode = UINT32_MAX - 1;
  uint32_t child(uint32_t node, uint8_t byte) const;
  const Below& below(uint32_t node) const { return below_[node]; }
  // The tokens behind the node's own bytes.
  std::span<const int32_t> tokens_below(uint32_t node) const;
  // How many characters begin in each of them, from its first byte on.
  std::span<const uint16_t> characters_below(uint32_t node) const;
  // The groups of all bytes of the tokens that begin with a node's bytes.
  ByteGroups groups_through(uint32_t node) const { return groups_through_[node]; }
  // Sets the bits of the tokens whose bytes all are of these groups, kOtherBytes not among them.
  void allow_groups(ByteGroups groups, std::span<uint32_t> mask) const;
  // Calls visit(token, characters that begin in it) for these.
  template <typename Visit>
  void for_each_of_groups(ByteGroups groups, const Visit& visit) const {
    for (size_t i = 0; i < order_.size(); ++i) {
      if ((token_groups_[i] & ~groups) == 0) visit(order_[i], characters_[i]);
    }
  }
  // What the tokens behind that node do within a JSON string.
  const StringTokens& string_tokens(uint32_t node) const;

  // Calls `take` with each token that `text` begins with, the shortest first.
  template <typename Take>
  void for_each_prefix(std::string_view text, Take take) const {
    uint32_t node = kRoot;
    for (const char c : text) {
      node = child(node, static_cast<uint8_t>(c));
      if (node == kNoNode) return;
      const int32_t first = nodes_[node].token;
      for (int32_t token = first; token != kNone; token = next_alike(token)) take(token);
    }
  }
  // The longest token that `text` begins with, or kNone.
  int32_t longest(std::string_view text) const;
  // How many tokens `text` takes, the longest first; SIZE_MAX if there is no way.
  size_t count_longest(std::string_view text) const;

 private:
  void order_tokens();
  void find_kinds();
  void find_groups();
  // Where those of tokens_below() are in order_.
  std::pair<size_t, size_t> range_below(uint32_t node) const;

  uint64_t id_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> alike_;
  std::vector<Node> nodes_;
  std::array<uint32_t, 256> first_{};       // the root's children
  std::vector<Below> below_;                // of each node
  std::vector<int32_t> order_;              // the tokens in preorder
  std::vector<uint16_t> characters_;        // that begin in each token of order_
  std::vector<ByteGroups> token_groups_;    // of the bytes of each token of order_
  std::vector<ByteGroups> groups_through_;  // of each node
  std::vector<uint32_t> with_group_;  // for each group, a bit a token: whether it has such bytes
  size_t max_token_bytes_ = 0;
  std::unique_ptr<StringTokensStore> string_tokens_;
};

using TokenTriePtr = std::shared_ptr<const TokenTrie>;

// A bit a token: whether it may come next. Of ceil(num_tokens / 32) words.
using TokenMask = std::span<uint32_t>;

inline size_t mask_words(size_t num_tokens) {
  return (num_tokens + 31) / 32;
}
inline void allow(TokenMask mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (static_cast<size_t>(token) % 32);
}
inline bool is_allowed(std::span<const uint32_t> mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (static_cast<size_t>(token) % 32) & 1) != 0;
}

// Some tokens: a list where they are few, else bits.
class TokenSet {
 public:
  TokenSet() = default;
  TokenSet(std::vector<int32_t> tokens, size_t num_tokens);
  static TokenSet of_bits(std::vector<uint32_t> bits) {
    TokenSet set;
    set.bits_ = std::move(bits);
    return set;
  }

  void allow(TokenMask mask) const {
    for (size_t i = 0; i < bits_.size(); ++i) mask[i] |= bits_[i];
    for (const int32_t token : few_) grammar::allow(mask, token);
  }
  size_t bytes() const { return bits_.size() * 4 + few_.size() * 4; }

 private:
  std::vector<uint32_t> bits_;
  std::vector<int32_t> few_;
};

inline void TokenTrie::allow_node(const Node& node, TokenMask mask) const {
  for_each_token(node, [&](int32_t token) { allow(mask, token); });
}

}  // namespace quire::grammar
