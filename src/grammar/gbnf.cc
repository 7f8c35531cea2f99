#include "grammar/gbnf.h"

#include <algorithm>

#include "base/utf8.h"
#include "grammar/json_tree.h"
#include "grammar/rule_parser.h"

namespace quire::grammar {
namespace {

class GbnfParser final : private RuleParser {
 public:
  GbnfParser(std::string_view text, Budget& budget) : RuleParser(text, budget) {}

  ContextFreeGrammar parse() {
    skip_space();
    while (at_ < text_.size()) parse_rule();
    return finish("root");
  }

 private:
  // White space and comments.
  void skip_space() {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  static bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string_view parse_name() {
    const size_t begin = at_;
    while (is_name_character(peek())) ++at_;
    if (at_ == begin) fail("expected the name of a rule");
    return text_.substr(begin, at_ - begin);
  }
  // Whether a rule begins here, and so the one before ends.
  bool at_rule() {
    const size_t begin = at_;
    while (is_name_character(peek())) ++at_;
    const bool has_name = at_ > begin;
    skip_space();
    const bool is_rule = has_name && text_.substr(at_).starts_with("::=");
    at_ = begin;
    return is_rule;
  }

  void parse_rule() {
    const size_t begin = at_;
    const std::string name(parse_name());
    skip_space();
    if (!take("::=")) fail("expected ::=");
    define(name, begin);
    skip_space();
    parse_alternatives(rule_of(name), 0);
    if (at_ < text_.size() && !at_rule()) fail("expected a rule, or a part of one");
  }

  void parse_alternatives(int rule, int depth) {
    check_depth(depth);
    do {
      skip_space();
      std::vector<Symbol> symbols;
      while (at_ < text_.size() && peek() != '|' && peek() != ')' && !at_rule()) {
        parse_item(rule, depth, symbols);
        skip_space();
      }
      grammar_.add_production(rule, std::move(symbols), budget_);
    } while (take("|"));
  }

  void parse_item(int rule, int depth, std::vector<Symbol>& symbols) {
    const Symbol symbol = parse_symbol(rule, depth);
    skip_space();
    int min = 1;
    int max = 1;
    bool is_repeat = true;
    if (take("*")) {
      min = 0;
      max = kNoLimit;
    } else if (take("+")) {
      max = kNoLimit;
    } else if (take("?")) {
      min = 0;
    } else if (take("{")) {
      parse_counts(min, max);
    } else {
      is_repeat = false;
    }
    symbols.push_back(is_repeat ? repeated(rule, symbol, min, max) : symbol);
  }

  Symbol parse_symbol(int rule, int depth) {
    if (take("(")) {
      const int group = part_of(rule);
      parse_alternatives(group, depth + 1);
      if (!take(")")) fail("a ( without its )");
      return {group};
    }
    if (take("\"")) return text_symbol(parse_literal());
    if (take("[")) return {-1, character(parse_class())};
    if (take(".")) return {-1, character({{0, 0x10FFFF}})};
    const size_t begin = at_;
    const std::string_view name = parse_name();
    use(name, begin);
    return {rule_of(name)};
  }

  void parse_counts(int& min, int& max) {
    min = parse_count();
    max = min;
    if (take(",")) {
      max = kNoLimit;
      if (peek() != '}') max = parse_count();
    }
    if (!take("}")) fail("expected }");
    check_counts(min, max);
  }

  std::string parse_literal() {
    std::string literal;
    while (!take("\"")) append_utf8(literal, parse_character());
    return literal;
  }
  CharacterSet parse_class() {
    return parse_class_of([this] { return parse_character(); });
  }

  char32_t parse_character() {
    constexpr std::string_view kNames = "nrt\\\"[]-^";
    constexpr std::string_view kMeanings = "\n\r\t\\\"[]-^";
    return parse_escaped_character(kNames, kMeanings);
  }
};

}  // namespace

ContextFreeGrammar parse_gbnf(std::string_view text, Budget& budget) {
  return GbnfParser(text, budget).parse();
}

}  // namespace quire::grammar
