#pragma once
// What the tokens below a node of a TokenTrie do within a JSON string that may be anything: some
// stay inside it, others end it and go on behind it. How many characters each has says which of
// them fit where a string's length is bounded.
//
// Found once for a vocabulary: it depends on no schema. Thread safety: immutable once made.
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/tokens/counted_tokens.h"
#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class StringTokens {
 public:
  struct Ending {
    int32_t token = 0;
    bool has_escape = false;      // before the quote
    uint32_t num_characters = 0;  // before the quote
    uint32_t prefix = 0;          // what is before the quote: an index of prefixes()
  };
  // A token that stays inside the string.
  struct Inside {
    int32_t token = 0;
    uint32_t num_characters = 0;    // the last may only have begun
    uint32_t unfinished_bytes = 0;  // that finish it then
  };

  // Of the tokens that go on behind `node` (kRoot: all), which is within the string.
  StringTokens(const TokenTrie& trie, uint32_t node);

  // Allows those that stay inside it and have at most so many characters.
  void allow_inside(uint64_t most_characters, TokenMask mask) const;
  // The same for those behind which at most `most_bytes` bytes make a string that lacked `missing`
  // characters before the token whole, its closing quote not counted.
  void allow_inside_in_time(uint64_t missing, uint64_t most_characters, uint64_t most_bytes,
                            TokenMask mask) const;
  // Those of them that have escapes.
  const std::vector<Inside>& escaped_inside() const { return escaped_; }
  // Those that end the string, by what they have from the closing quote on: a token of `suffixes`
  // is an index of this.
  const std::vector<std::vector<Ending>>& endings() const { return endings_; }
  const TokenTrie& suffixes() const { return *suffixes_; }
  // What they have before the quote, from behind the node on, each once and as it is written.
  const std::vector<std::string>& prefixes() const { return prefixes_; }

 private:
  CountedTokens whole_;  // by characters, the last of which is whole
  std::vector<Inside> unfinished_;
  std::vector<Inside> escaped_;
  std::vector<std::vector<Ending>> endings_;
  std::unique_ptr<const TokenTrie> suffixes_;
  std::vector<std::string> prefixes_;
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
