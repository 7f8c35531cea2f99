#pragma once
// Texts of an automaton: regular expressions and choices.
//
// Thread safety: as language.h says.
#include <cstdint>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/tokens/language.h"

namespace quire::grammar {

class DfaLanguage final : public Language {
 public:
  // `grammar` has texts.
  DfaLanguage(GrammarPtr grammar, Budget& budget);

  std::unique_ptr<ByteMatcher> begin() const override;

  const Dfa& dfa() const { return *grammar_->texts(); }
  // The fewest bytes from a state to an end, and the first of them.
  uint32_t distance(int32_t state) const { return distance_[static_cast<size_t>(state)]; }
  uint8_t next_byte(int32_t state) const { return next_byte_[static_cast<size_t>(state)]; }
  bool goes_on(int32_t state) const { return goes_on_[static_cast<size_t>(state)]; }

 private:
  GrammarPtr grammar_;
  std::vector<uint32_t> distance_;
  std::vector<uint8_t> next_byte_;
  std::vector<bool> goes_on_;
};

}  // namespace quire::grammar
