#pragma once
// Shared by the parsers of grammars' notations: a place in the text, its errors, and unfinished
// rules.
//
// Thread safety: one thread at a time.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/context_free.h"
#include "grammar/nfa.h"

namespace quire::grammar {

class RuleParser {
 public:
  RuleParser(const RuleParser&) = delete;
  RuleParser& operator=(const RuleParser&) = delete;

 protected:
  using Symbol = ContextFreeGrammar::Symbol;
  static constexpr int kMaxDepth = 200;  // of groups
  static constexpr int kMaxCount = 2000;
  static constexpr int kNoLimit = -1;

  RuleParser(std::string_view text, Budget& budget) : text_(text), budget_(budget) {}
  ~RuleParser() = default;

  [[noreturn]] void fail(std::string_view what) const;
  [[noreturn]] void fail_at(size_t place, std::string_view what);
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what);
  // Digits.
  int parse_count();
  void check_counts(int min, int max) const;
  void check_depth(int depth) const;
  // A character of the text; throws past its line.
  char32_t parse_plain_character();
  char32_t parse_hex(int digits);
  // The same, or an escape: \xXX, \uXXXX, \UXXXXXXXX, or one of `names` for the character of
  // `meanings` in its place.
  char32_t parse_escaped_character(std::string_view names, std::string_view meanings);

  // The characters of a class, behind its [, up to its ]; each is read by take_character().
  CharacterSet parse_class_of(const std::function<char32_t()>& take_character);

  int rule_of(std::string_view name);
  // A rule of the same name, for a part of it.
  int part_of(int rule);
  // A rule is used, or defined, at a place in the text.
  void use(std::string_view name, size_t place) { used_.emplace(std::string(name), place); }
  void define(std::string_view name, size_t place);
  bool is_defined(std::string_view name) const { return defined_.contains(std::string(name)); }
  // `symbol`, `min` to `max` times.
  Symbol repeated(int rule, const Symbol& symbol, int min, int max);
  Symbol text_symbol(const std::string& text);
  DfaPtr character(const CharacterSet& set);
  // The grammar, once all rules are there.
  ContextFreeGrammar finish(std::string_view root);

  std::string_view text_;
  Budget& budget_;
  size_t at_ = 0;
  ContextFreeGrammar grammar_;

 private:
  int add_rule(std::string name);

  std::map<std::string, int> rules_;
  std::map<std::string, size_t> defined_;  // and where
  std::map<std::string, size_t> used_;
  std::map<std::string, DfaPtr> texts_;
};

}  // namespace quire::grammar
