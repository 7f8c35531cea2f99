#pragma once
// Deterministic automata over bytes: the languages of strings, keys and numbers.
//
// An automaton is trimmed: every state except the start leads to an accepting one, so a byte after
// which nothing can be accepted leads to kDead. Thread safety: immutable once made.
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/budget.h"

namespace quire::grammar {

class Dfa {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  // A table before it is trimmed. Bytes of one class lead to the same state everywhere. Leading
  // bytes of UTF-8 and its continuation bytes (0x80 to 0xBF) must be in different classes.
  struct Table {
    std::array<uint8_t, 256> classes{};
    int num_classes = 0;
    std::vector<int32_t> next;  // [state * num_classes + class]; state 0 is the start
    std::vector<bool> accepting;
  };
  Dfa(Table table, Budget& budget);

  int32_t start() const { return is_empty_ ? kDead : 0; }
  int32_t step(int32_t state, uint8_t byte) const {
    return state < 0 ? kDead : table_.next[index(state, table_.classes[byte])];
  }
  bool accepts(int32_t state) const { return state >= 0 && table_.accepting[to_size(state)]; }
  bool matches(std::string_view text) const;
  bool is_empty() const { return is_empty_; }
  int32_t num_states() const { return static_cast<int32_t>(table_.accepting.size()); }
  const Table& table() const { return table_; }

  // For each state the fewest and the most characters (UTF-8 code points) to an accepting state.
  struct Lengths {
    std::vector<uint32_t> fewest;
    std::vector<uint32_t> most;  // kUnbounded: no limit
  };
  Lengths lengths() const;

 private:
  static size_t to_size(int32_t i) { return static_cast<size_t>(i); }
  size_t index(int32_t state, int byte_class) const {
    return to_size(state) * to_size(table_.num_classes) + to_size(byte_class);
  }
  void trim(Budget& budget);

  Table table_;
  bool is_empty_ = false;
};

using DfaPtr = std::shared_ptr<const Dfa>;

// The edges of a table by the states that they lead to.
class EdgesBack {
 public:
  explicit EdgesBack(const Dfa::Table& table);

  // Indexes into Table::next: state * num_classes + class.
  std::span<const uint32_t> to(size_t state) const {
    return {edges_.data() + begin_[state], begin_[state + 1] - begin_[state]};
  }
  static size_t bytes(const Dfa::Table& table) {
    return (table.next.size() + table.accepting.size()) * sizeof(uint32_t);
  }

 private:
  std::vector<uint32_t> begin_;  // in edges_, of each state
  std::vector<uint32_t> edges_;
};

enum class Combine { kBoth, kEither, kFirstOnly };
// The texts of both, of either, or of `a` but not `b`.
DfaPtr combine(const Dfa& a, const Dfa& b, Combine how, Budget& budget);

// All valid UTF-8.
DfaPtr utf8_dfa(Budget& budget);

}  // namespace quire::grammar
