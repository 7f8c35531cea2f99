#pragma once
// A place in a text of some language, which goes forth and back byte by byte: what masks are made
// with. Unlike a Matcher it never stands where no text of the language goes on.
//
// Thread safety: one thread at a time each.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class ByteMatcher {
 public:
  static constexpr size_t kNoEnding = SIZE_MAX;

  ByteMatcher() = default;
  virtual ~ByteMatcher() = default;
  ByteMatcher& operator=(const ByteMatcher&) = delete;

  virtual std::unique_ptr<ByteMatcher> clone() const = 0;

  // Takes a byte; false, and nothing is taken, if no text of the language begins like this.
  virtual bool push(uint8_t byte) = 0;
  // Takes back the last `count` bytes; at most those since commit().
  virtual void pop(size_t count) = 0;
  // What has been taken stays.
  virtual void commit() = 0;

  // Whether the bytes so far are a text of the language.
  virtual bool can_end() const = 0;
  // Whether they are, and nothing more can follow.
  virtual bool must_end() const = 0;

  // Bytes among which are all that may come, each once; nothing where nearly all may.
  virtual std::optional<std::string> next_bytes() const { return std::nullopt; }

  // Bytes that lead to an end, as few as it can find; empty where the text can end.
  virtual std::string ending() const = 0;
  // Their number.
  virtual size_t ending_bytes() const = 0;
  // What ending() said need not be what it says once some of it has been taken.
  virtual void forget_ending() {}

  // Sets the bits of the tokens that may come next and after which ending_bytes() is at most
  // `most_ending_bytes`. Leaves the others as they are. The matcher is where it was, afterwards.
  // Returns what ending_bytes() behind any of them is at most, kNoEnding where it does not know.
  // Given kNoEnding: limits from that on set the same bits.
  virtual size_t allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask);

 protected:
  // The same for the nodes of the trie from `begin` to `end` alone: whole subtrees of one depth.
  // The matcher is where their first bytes come next.
  size_t allow_nodes(const TokenTrie& trie, size_t begin, size_t end, size_t most_ending_bytes,
                     TokenMask mask);
  // The same for these nodes, in order, and all below them. The matcher is before their paths.
  size_t allow_below(const TokenTrie& trie, std::span<const uint32_t> roots,
                     size_t most_ending_bytes, TokenMask mask);

  ByteMatcher(const ByteMatcher&) = default;
};

}  // namespace quire::grammar
