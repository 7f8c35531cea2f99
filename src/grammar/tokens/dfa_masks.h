#pragma once
// The tokens that an automaton lets pass from each of its states: found when they are first asked
// for, then kept.
//
// Thread safety: any thread, at the same time.
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

// Calls take(node, index, state) with the nodes of the trie that `dfa` lets pass from `state`;
// those behind one are left out where it returns false.
template <typename Take>
void walk_dfa(const Dfa& dfa, int32_t state, const TokenTrie& trie, Take take) {
  const Dfa::Table& table = dfa.table();
  const auto num_classes = static_cast<size_t>(table.num_classes);
  const auto nodes = trie.nodes();
  std::vector<int32_t> states(trie.max_token_bytes() + 1);
  states[0] = state;
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const auto from = static_cast<size_t>(states[node.depth - 1U]);
    const int32_t next = table.next[from * num_classes + table.classes[node.byte]];
    if (next == Dfa::kDead) {
      i = node.end;
      continue;
    }
    states[node.depth] = next;
    i = take(node, i, next) ? i + 1 : node.end;
  }
}

class DfaMasks {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;

  using Bytes = std::bitset<256>;

  struct Masks {
    std::vector<uint32_t> tokens;
    std::vector<uint32_t> exits;  // in order
  };
  using MasksPtr = std::shared_ptr<const Masks>;

  // The tokens that the automaton lets pass as a whole, and where others leave it: nodes of the
  // trie at which it accepts and which one of `next_bytes` may follow. One number has one set of
  // bytes.
  MasksPtr get(const Dfa& dfa, int32_t state, const TokenTrie& trie, uint32_t number,
               const Bytes& next_bytes);
  // Without exits.
  MasksPtr get(const Dfa& dfa, int32_t state, const TokenTrie& trie) {
    return get(dfa, state, trie, UINT32_MAX, {});
  }
  // The tokens on whose way the automaton never accepts; and the first nodes at which it does.
  MasksPtr get_before_end(const Dfa& dfa, int32_t state, const TokenTrie& trie);

  // Of all that are kept.
  size_t bytes() {
    const std::scoped_lock lock(mutex_);
    return bytes_;
  }

 private:
  template <typename Make>
  MasksPtr find_or_make(uint64_t key, const TokenTrie& trie, Make make);
  MasksPtr find(uint64_t key, uint64_t trie);
  void keep(uint64_t key, uint64_t trie, const MasksPtr& masks);

  std::mutex mutex_;
  uint64_t trie_ = 0;  // which the masks are of
  std::unordered_map<uint64_t, MasksPtr> masks_;
  size_t bytes_ = 0;
};

// Sets the bits of `tokens` in `mask`.
void allow_all(std::span<const uint32_t> tokens, TokenMask mask);

}  // namespace quire::grammar
