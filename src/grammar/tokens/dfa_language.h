#pragma once
// Texts of an automaton: regular expressions and choices.
//
// Thread safety: as language.h says.
#include "grammar/dfa.h"
#include "grammar/tokens/dfa_endings.h"
#include "grammar/tokens/dfa_masks.h"
#include "grammar/tokens/language.h"

namespace quire::grammar {

class DfaLanguage final : public Language {
 public:
  // `grammar` has texts.
  DfaLanguage(GrammarPtr grammar, Budget& budget)
      : grammar_(std::move(grammar)), endings_(dfa(), budget) {}

  std::unique_ptr<ByteMatcher> begin() const override;
  size_t learnt_bytes() const override { return masks_.bytes(); }

  const Dfa& dfa() const { return *grammar_->texts(); }
  const DfaEndings& endings() const { return endings_; }
  DfaMasks& masks() const { return masks_; }

 private:
  GrammarPtr grammar_;
  DfaEndings endings_;
  mutable DfaMasks masks_;
};

}  // namespace quire::grammar
