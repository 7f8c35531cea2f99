#pragma once
// Texts of a context-free grammar.
//
// Thread safety: as language.h says.
#include "grammar/tokens/context_free_tables.h"
#include "grammar/tokens/language.h"

namespace quire::grammar {

class ContextFreeLanguage final : public Language {
 public:
  // `grammar` has rules.
  ContextFreeLanguage(GrammarPtr grammar, Budget& budget)
      : grammar_(std::move(grammar)), tables_(*grammar_->rules(), budget) {}

  std::unique_ptr<ByteMatcher> begin() const override;
  size_t learnt_bytes() const override { return tables_.learnt_bytes(); }

 private:
  GrammarPtr grammar_;
  ContextFreeTables tables_;
};

}  // namespace quire::grammar
