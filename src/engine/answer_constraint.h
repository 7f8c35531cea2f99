#pragma once
// One output's place in what its answer has to be: free text up to a marker, if the constraint has
// one, then a text of a language.
//
// It always can end, and in time: see grammar/tokens/constraint.h. Thread safety: AnswerLanguage is
// immutable, an AnswerConstraint for one thread at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/answer_start.h"
#include "grammar/tokens/constraint.h"
#include "quire/tokenizer.h"

namespace quire {

// A compiled StructuredOutput.
struct AnswerLanguage {
  grammar::LanguagePtr language;
  grammar::TokenTriePtr trie;          // a token for each of the model's ids
  std::optional<AnswerStart> start;    // none: the constraint begins at once
  size_t tokens_to_end = 0;            // of a whole answer, at most
  std::optional<Tokenizer> tokenizer;  // cuts texts without a choice; none: they are chosen
};
using AnswerLanguagePtr = std::shared_ptr<const AnswerLanguage>;

class AnswerConstraint {
 public:
  explicit AnswerConstraint(AnswerLanguagePtr language);

  // Sets the bits of the tokens that may come next, end-of-sequence tokens aside. Returns a number
  // of tokens: with that and any greater one left behind the next token, allow_tokens_in_time()
  // sets the same bits. SIZE_MAX where it knows none.
  size_t allow_tokens(grammar::TokenMask mask);
  // Of these, those behind which an end can be reached with `tokens_left` tokens, them included. At
  // least one if tokens_left is at least tokens_to_end() and must_end() is false.
  void allow_tokens_in_time(size_t tokens_left, grammar::TokenMask mask);
  // Whether allow_tokens_in_time() sets the bit of a token that may come next.
  bool leads_to_end(int32_t token, size_t tokens_left);
  // Takes a token; false, and nothing is taken, if it may not come. `tokens_left`: those that are
  // left, it included, at least 1. With the same numbers the same may follow, whatever was asked.
  bool accept(int32_t token, size_t tokens_left);

  bool can_end() const { return !is_free_ && constraint_.can_end(); }
  bool must_end() const { return !is_free_ && constraint_.must_end(); }
  // With how many tokens an end can be reached, at most; SIZE_MAX if the vocabulary has none for
  // it.
  size_t tokens_to_end();
  // The token that comes next where the text has no choice: the one that the tokenizer begins the
  // bytes with that have to follow. None where that depends on what is behind them, or where it
  // would not have cut behind the newest token. It follows from the tokens that were taken.
  std::optional<int32_t> forced_token();

 private:
  const AnswerStart& start() const { return *language_->start; }
  // Whether any token of the free text leaves room for the marker and an answer, but those that
  // go on behind the marker.
  bool has_room(size_t tokens_left);
  // Whether one of those does, which has `rest` behind it.
  bool leads_on(std::string_view rest, size_t tokens_left) const;
  void allow_free_tokens(grammar::TokenMask mask) const;
  bool accept_token(int32_t token, size_t tokens_left);
  void remember(int32_t token);

  AnswerLanguagePtr language_;
  bool is_free_;            // before the marker's end
  size_t start_state_ = 0;  // while is_free_
  grammar::Constraint constraint_;
  // The text of the newest tokens, behind the last special one: the tokenizer cuts the text on
  // either side of that by itself. newest_bytes_ has the bytes of each.
  std::string newest_text_;
  std::array<size_t, 8> newest_bytes_{};
};

}  // namespace quire
