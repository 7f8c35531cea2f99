#pragma once
// Where the constraint on an answer begins: behind the first occurrence of a text in it
// (StructuredOutput::begins_after), as "</think>".
//
// The text before is free. Its state is how many bytes of the marker it ends with (Knuth, Morris
// and Pratt's automaton). Thread safety: immutable once made.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/tokens/token_trie.h"

namespace quire {

class AnswerStart {
 public:
  static constexpr size_t kMaxBytes = 64;

  // A token in which the marker ends, and more bytes follow.
  struct Crossing {
    int32_t token = 0;
    std::string_view rest;  // behind the marker; points into the trie
  };
  struct Step {
    size_t state = 0;
    // What the token has behind the marker, if the marker ends in it.
    std::optional<std::string_view> rest;
  };

  // `marker` has 1 to kMaxBytes bytes. `special`: the special token that is spelled like it, whose
  // bytes the trie does not have. Throws Error where the vocabulary has no tokens for the marker.
  AnswerStart(std::string marker, std::optional<int32_t> special, grammar::TokenTriePtr trie);

  // Takes a token of the free text. Ids beyond the trie are tokens without bytes.
  Step step(size_t state, int32_t token) const;
  // Tokens that make the marker's rest from a state.
  std::span<const int32_t> plan(size_t state) const { return plans_[state]; }
  size_t longest_plan() const { return longest_plan_; }
  std::span<const Crossing> crossings(size_t state) const { return crossings_[state]; }

 private:
  void make_automaton();
  void make_plans();
  void find_crossings();

  std::string marker_;
  std::optional<int32_t> special_;
  grammar::TokenTriePtr trie_;
  std::vector<std::array<uint8_t, 256>> next_;  // of each state
  std::vector<std::vector<int32_t>> plans_;
  size_t longest_plan_ = 0;
  std::vector<std::vector<Crossing>> crossings_;
};

}  // namespace quire
