#pragma once
// A constraint on a text, as one object that matchers follow byte by byte: a JSON Schema, a regular
// expression, a context-free grammar or a choice of texts.
//
//   const GrammarPtr grammar = compile_json_schema(R"({"type": "integer"})");
//   Matcher matcher(grammar);
//   matcher.advance('4') && matcher.can_end();   // true
//
// What compiles is enforced exactly. What cannot be enforced is refused with an Error that names
// the keyword by its JSON pointer. Thread safety: a grammar is immutable; each matcher is for one
// thread at a time.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "grammar/budget.h"
#include "grammar/context_free.h"
#include "grammar/dfa.h"
#include "grammar/json_grammar.h"
#include "grammar/json_matcher.h"

namespace quire::grammar {

class Grammar {
 public:
  explicit Grammar(DfaPtr texts) : language_(std::move(texts)) {}
  explicit Grammar(JsonGrammar json) : language_(std::move(json)) {}
  explicit Grammar(ContextFreeGrammar rules) : language_(std::move(rules)) {}

  // All but one are null.
  const Dfa* texts() const;
  const JsonGrammar* json() const;
  const ContextFreeGrammar* rules() const;

 private:
  std::variant<DfaPtr, JsonGrammar, ContextFreeGrammar> language_;
};

using GrammarPtr = std::shared_ptr<const Grammar>;

// Each throws Error for text that is no such constraint, cannot be enforced or exceeds the limits.
GrammarPtr compile_json_schema(std::string_view schema, const CompileLimits& limits = {});
// The whole text matches.
GrammarPtr compile_regex(std::string_view pattern, const CompileLimits& limits = {});
// In llama.cpp's notation, Lark's, the W3C's or ISO's (gbnf.h, lark.h, ebnf.h), as the text shows.
GrammarPtr compile_gbnf(std::string_view text, const CompileLimits& limits = {});
GrammarPtr compile_choice(std::span<const std::string> choices, const CompileLimits& limits = {});

class Matcher {
 public:
  explicit Matcher(GrammarPtr grammar);

  // Takes a byte; false if no text of the grammar begins like this. For JSON that may be noticed
  // late: numbers are judged at their end, names at their closing quote. After false it stays
  // false.
  bool advance(uint8_t byte);
  bool can_end() const;

 private:
  GrammarPtr grammar_;
  std::variant<int32_t, JsonMatcher, EarleyMatcher> state_;
};

// Whether the whole text is in the grammar.
bool accepts(const GrammarPtr& grammar, std::string_view text);

}  // namespace quire::grammar
