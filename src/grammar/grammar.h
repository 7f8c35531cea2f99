#pragma once
// What a text has to be: a JSON Schema, a regular expression, a context-free grammar or
// one of some texts, as one object that matchers follow byte by byte.
//
//   const GrammarPtr grammar = compile_json_schema(R"({"type": "integer"})");
//   Matcher matcher(grammar);
//   matcher.advance('4') && matcher.can_end();   // true
//
// What is accepted is enforced exactly; what cannot be is refused with an Error that names the
// keyword by its JSON pointer. Thread safety: a grammar is immutable; matchers are for one thread
// at a time each.
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

// Each throws Error for what is no such constraint, cannot be enforced or passes the limits.
GrammarPtr compile_json_schema(std::string_view schema, const CompileLimits& limits = {});
// The whole text matches.
GrammarPtr compile_regex(std::string_view pattern, const CompileLimits& limits = {});
// In llama.cpp's notation or Lark's (gbnf.h, lark.h), whichever its first rule is in.
GrammarPtr compile_gbnf(std::string_view text, const CompileLimits& limits = {});
GrammarPtr compile_choice(std::span<const std::string> choices, const CompileLimits& limits = {});

class Matcher {
 public:
  explicit Matcher(GrammarPtr grammar);

  // Takes a byte; false if no text of the grammar begins like this. In JSON that may be seen late:
  // numbers are judged at their end, names at their closing quote. From then on it stays false.
  bool advance(uint8_t byte);
  bool can_end() const;

 private:
  GrammarPtr grammar_;
  std::variant<int32_t, JsonMatcher, EarleyMatcher> state_;
};

// Whether the whole text is in the grammar.
bool accepts(const GrammarPtr& grammar, std::string_view text);

}  // namespace quire::grammar
