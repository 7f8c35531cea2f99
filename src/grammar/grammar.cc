#include "grammar/grammar.h"

#include <fmt/format.h>

#include "grammar/ebnf.h"
#include "grammar/gbnf.h"
#include "grammar/lark.h"
#include "grammar/nfa.h"
#include "grammar/number_dfa.h"
#include "grammar/regex.h"
#include "grammar/schema.h"
#include "grammar/schema_goals.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

void check_size(std::string_view what, size_t bytes, const CompileLimits& limits) {
  if (bytes <= limits.source_bytes) return;
  throw Error(
      fmt::format("{} of {} bytes; at most {} are taken", what, bytes, limits.source_bytes));
}

// Nothing matches: said at once, as nothing could be generated.
DfaPtr not_empty(DfaPtr texts, std::string_view what) {
  if (texts->is_empty()) throw Error(fmt::format("no text matches the {}", what));
  return texts;
}

// In the notation that it is written in.
ContextFreeGrammar parse_rules(std::string_view text, Budget& budget) {
  if (const EbnfKind kind = ebnf_kind(text); kind != EbnfKind::kNone) {
    return parse_ebnf(text, kind, budget);
  }
  return is_lark(text) ? parse_lark(text, budget) : parse_gbnf(text, budget);
}

}  // namespace

const Dfa* Grammar::texts() const {
  const auto* dfa = std::get_if<DfaPtr>(&language_);
  return dfa == nullptr ? nullptr : dfa->get();
}

const JsonGrammar* Grammar::json() const {
  return std::get_if<JsonGrammar>(&language_);
}

const ContextFreeGrammar* Grammar::rules() const {
  return std::get_if<ContextFreeGrammar>(&language_);
}

GrammarPtr compile_json_schema(std::string_view schema, const CompileLimits& limits) {
  check_size("a schema", schema.size(), limits);
  Budget budget(limits);
  JsonGrammar grammar(DfaStore(budget, utf8_dfa), DfaStore(budget, any_number_dfa));
  const Schema nodes = parse_schema(schema, grammar.strings, grammar.numbers, budget);
  SchemaGoals(nodes, grammar, budget).build();
  grammar.strings.finish();
  grammar.numbers.finish();
  return std::make_shared<Grammar>(std::move(grammar));
}

GrammarPtr compile_regex(std::string_view pattern, const CompileLimits& limits) {
  Budget budget(limits);
  return std::make_shared<Grammar>(
      not_empty(compile_regex_dfa(pattern, RegexMatch::kWhole, budget), "regular expression"));
}

GrammarPtr compile_gbnf(std::string_view text, const CompileLimits& limits) {
  check_size("a grammar", text.size(), limits);
  Budget budget(limits);
  ContextFreeGrammar rules = parse_rules(text, budget);
  if (DfaPtr whole = rules.text()) return std::make_shared<Grammar>(std::move(whole));
  return std::make_shared<Grammar>(std::move(rules));
}

GrammarPtr compile_choice(std::span<const std::string> choices, const CompileLimits& limits) {
  size_t bytes = 0;
  for (const std::string& choice : choices) bytes += choice.size();
  check_size("choices", bytes, limits);
  Budget budget(limits);
  Nfa nfa;
  const int32_t begin = nfa.add_state();
  ScratchMemory memory(budget);
  for (const std::string& choice : choices) {
    budget.step();
    memory.take(choice.size() * Nfa::kStateBytes);
    nfa.add_epsilon(begin, Nfa::Epsilon::kAlways, nfa.add_text(choice, nfa.accept()));
  }
  return std::make_shared<Grammar>(not_empty(nfa.determinise(begin, budget), "choice"));
}

Matcher::Matcher(GrammarPtr grammar) : grammar_(std::move(grammar)), state_(int32_t{0}) {
  if (const JsonGrammar* json = grammar_->json()) state_.emplace<JsonMatcher>(*json);
  if (const ContextFreeGrammar* rules = grammar_->rules()) state_.emplace<EarleyMatcher>(*rules);
}

bool Matcher::advance(uint8_t byte) {
  if (auto* json = std::get_if<JsonMatcher>(&state_)) return json->advance(byte);
  if (auto* rules = std::get_if<EarleyMatcher>(&state_)) return rules->advance(byte);
  int32_t& state = std::get<int32_t>(state_);
  state = grammar_->texts()->step(state, byte);
  return state != Dfa::kDead;
}

bool Matcher::can_end() const {
  if (const auto* json = std::get_if<JsonMatcher>(&state_)) return json->can_end();
  if (const auto* rules = std::get_if<EarleyMatcher>(&state_)) return rules->can_end();
  return grammar_->texts()->accepts(std::get<int32_t>(state_));
}

bool accepts(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  for (const char c : text) {
    if (!matcher.advance(static_cast<uint8_t>(c))) return false;
  }
  return matcher.can_end();
}

}  // namespace quire::grammar
