#pragma once
// What the tokens below a node of a TokenTrie do within a JSON string that may be anything: some
// stay inside it, others end it and go on behind it.
//
// Found once for a vocabulary: it depends on no schema. Thread safety: immutable once made.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class StringTokens {
 public:
  struct Ending {
    int32_t token = 0;
    bool has_escape = false;      // before the quote
    uint16_t num_characters = 0;  // before the quote
  };

  // Of the tokens that go on behind `node` (kRoot: all), which is within the string.
  StringTokens(const TokenTrie& trie, uint32_t node);

  // Allows those that stay inside it.
  void allow_inside(TokenMask mask) const { inside_.allow(mask); }
  // Those that end the string, by what they have from the closing quote on: a token of `suffixes`
  // is an index of this.
  const std::vector<std::vector<Ending>>& endings() const { return endings_; }
  const TokenTrie& suffixes() const { return *suffixes_; }

 private:
  TokenSet inside_;
  std::vector<std::vector<Ending>> endings_;
  std::unique_ptr<const TokenTrie> suffixes_;
};

// Those of one trie, made when they are asked for. Thread safety: any thread.
class StringTokensStore {
 public:
  const StringTokens& at(const TokenTrie& trie, uint32_t node) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const StringTokens>& made = by_node_[node];
    if (!made) made = std::make_unique<const StringTokens>(trie, node);
    return *made;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uint32_t, std::unique_ptr<const StringTokens>> by_node_;
};

}  // namespace quire::grammar
