#pragma once
// One sequence's place in a language: which tokens may come next, so that it always can end, and
// in time.
//
//   Constraint constraint(language, trie);
//   constraint.allow_tokens(tokens_left, mask);   // a bit a token
//   constraint.accept(token);
//   constraint.can_end();                         // whether an end-of-sequence token may come
//
// Thread safety: one thread at a time each.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>

#include "grammar/tokens/forced_text.h"
#include "grammar/tokens/language.h"
#include "grammar/tokens/token_trie.h"

namespace quire::grammar {

class Constraint {
 public:
  static constexpr size_t kAnyNumber = SIZE_MAX;

  Constraint(LanguagePtr language, TokenTriePtr trie);
  Constraint(const Constraint& other);
  Constraint(Constraint&&) = default;
  Constraint& operator=(const Constraint&) = delete;
  Constraint& operator=(Constraint&&) = default;

  // Sets the bits of the tokens that may come next if an end is to be reached with at most
  // `tokens_left` tokens, them included: at least one, as long as tokens_left never was less than
  // tokens_to_end() and must_end() is false. Leaves the others as they are. With kAnyNumber it
  // returns a number behind the next token from which on every number sets the same bits;
  // kAnyNumber where it knows none.
  size_t allow_tokens(size_t tokens_left, TokenMask mask);
  // Whether `token` may come next, not looking at what is left.
  bool allows(int32_t token);
  // Whether allow_tokens(tokens_left, ...) sets the bit of a token that may come next.
  bool leads_to_end(int32_t token, size_t tokens_left);
  // Takes a token; false, and nothing is taken, if it may not come. `tokens_left`: what is left for
  // it and an end, at least 1. With a number for each token, all that is said of the next ones
  // follows from the tokens and the numbers, and not from what was asked in between.
  bool accept(int32_t token, size_t tokens_left = kAnyNumber);
  // Takes bytes that are no token of their own, or none of them.
  bool accept_bytes(std::string_view bytes);

  bool can_end() const { return matcher_->can_end(); }
  bool must_end() const { return matcher_->must_end(); }
  // With how many tokens an end can be reached, at most; SIZE_MAX if the vocabulary has none for
  // it.
  size_t tokens_to_end();
  // The bytes that come next in every text.
  const ForcedText& forced_text();

 private:
  // Takes bytes, or none of them.
  bool push(std::string_view bytes);
  // The bytes that were pushed stay.
  void commit(std::string_view bytes);
  // Fills plan_ if it is not known.
  void make_plan();

  LanguagePtr language_;
  TokenTriePtr trie_;
  std::unique_ptr<ByteMatcher> matcher_;
  // Tokens that lead to an end from here, while has_plan_.
  std::deque<int32_t> plan_;
  bool has_plan_ = false;
  bool plan_fails_ = false;                // the vocabulary has no tokens for an end
  std::optional<ForcedText> forced_text_;  // none: not looked for here
};

}  // namespace quire::grammar
