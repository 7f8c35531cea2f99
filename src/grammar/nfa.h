#pragma once
// Automata with choices over bytes, from which deterministic ones are made.
//
// Built backwards: what follows is made first and handed to what goes before, so that a look-ahead
// sees the whole rest. Thread safety: one thread at a time.
#include <cstdint>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

struct CharacterRange {
  char32_t first;
  char32_t last;
};
// Sorted, neither overlapping nor touching.
using CharacterSet = std::vector<CharacterRange>;

CharacterSet normalised(CharacterSet set);
// All characters but those of a normalised set.
CharacterSet inverted(const CharacterSet& set);

class Nfa {
 public:
  static constexpr size_t kStateBytes = 160;  // with its edges, for a Budget

  Nfa() { add_state(); }

  enum class Epsilon : uint8_t { kAlways, kAtStart, kAtEnd, kAtWordEdge, kInsideWord };

  int32_t accept() const { return 0; }
  int32_t add_state();
  void add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to);
  void add_epsilon(int32_t from, Epsilon when, int32_t to);
  // A state from which one character of a normalised set leads to `next`.
  int32_t add_characters(const CharacterSet& set, int32_t next);
  // A state from which a text of `dfa` leads to `next`.
  int32_t add_dfa(const Dfa& dfa, int32_t next);
  // A state from which `text` leads to `next`.
  int32_t add_text(std::string_view text, int32_t next);

  size_t size() const { return states_.size(); }
  // Whether an edge of that kind can be reached from `from`.
  bool reaches(int32_t from, Epsilon when) const;
  // The deterministic automaton of the texts from `from` to accept().
  DfaPtr determinise(int32_t from, Budget& budget) const;

 private:
  friend class SubsetConstruction;
  struct ByteEdge {
    uint8_t first;
    uint8_t last;
    int32_t to;
  };
  struct EpsilonEdge {
    Epsilon when;
    int32_t to;
  };
  struct State {
    std::vector<ByteEdge> bytes;
    std::vector<EpsilonEdge> epsilons;
  };
  // Continuation bytes that are needed after `level` bytes, all of them allowed.
  int32_t any_continuation(std::vector<int32_t>& made, int level, int32_t next);
  void add_utf8_range(int32_t from, char32_t first, char32_t last, int32_t next,
                      std::vector<int32_t>& made);

  std::vector<State> states_;
};

}  // namespace quire::grammar
