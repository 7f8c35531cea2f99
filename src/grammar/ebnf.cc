#include "grammar/ebnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/hex_digit.h"
#include "base/utf8.h"
#include "grammar/rule_parser.h"

namespace quire::grammar {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

bool is_ebnf_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

// Whether W3C's #x and hexadecimal digits stand there.
bool is_character_code(std::string_view text) {
  return text.size() > 2 && text.starts_with("#x") && hex_digit(text[2]) >= 0;
}

// Behind white space and the comments of all notations that are told apart here. A # is one of
// GBNF's, unless it is a character's code.
size_t skip_to_first_rule(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const std::string_view rest = text.substr(at);
    if (kWhiteSpace.find(rest[0]) != std::string_view::npos) {
      ++at;
    } else if (rest.starts_with("/*") || rest.starts_with("(*")) {
      const size_t end = rest.find(rest[0] == '/' ? "*/" : "*)", 2);
      at = end == std::string_view::npos ? text.size() : at + end + 2;
    } else if (rest[0] == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else {
      break;
    }
  }
  return at;
}

// Whether a text with ::= has what GBNF has not: 'literals', #x41, comments, <names>.
bool has_w3c_parts(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if (rest[0] == '\'' || rest[0] == '<' || rest.starts_with("/*") || is_character_code(rest)) {
      return true;
    }
    if (rest[0] == '#') at = std::min(text.find('\n', at), text.size());
    if (rest[0] != '"' && rest[0] != '[') continue;
    const char end = rest[0] == '"' ? '"' : ']';
    for (++at; at < text.size() && text[at] != end && text[at] != '\n'; ++at) {
      if (end == ']' && is_character_code(text.substr(at))) return true;
      if (text[at] == '\\') ++at;
    }
  }
  return false;
}

class EbnfParser final : private RuleParser {
 public:
  EbnfParser(std::string_view text, EbnfKind kind, Budget& budget)
      : RuleParser(text, budget), is_iso_(kind == EbnfKind::kIso) {}

  ContextFreeGrammar parse() {
    skip_space();
    std::optional<std::string> first;
    while (at_ < text_.size()) {
      std::string name = parse_rule();
      if (!first) first = std::move(name);
    }
    return finish(!first || is_defined("root") ? "root" : *first);
  }

 private:
  // A part of a rule, and which characters it is where it always is one.
  struct Part {
    Symbol symbol;
    std::optional<CharacterSet> characters{};
  };

  // White space and comments.
  void skip_space() {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (kWhiteSpace.find(rest[0]) != std::string_view::npos) {
        ++at_;
      } else if (rest.starts_with(is_iso_ ? "(*" : "/*")) {
        const size_t end = rest.find(is_iso_ ? "*)" : "*/", 2);
        if (end == std::string_view::npos) fail("a comment without its end");
        at_ += end + 2;
      } else if (rest[0] == '#' && !rest.starts_with("#x") && !rest.starts_with("#X")) {
        // A comment, as GBNF has them; the others are characters' codes, or meant to be.
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return;
      }
    }
  }

  std::string parse_name() {
    const size_t begin = at_;
    if (!is_iso_ && take("<")) {
      const size_t end = text_.find_first_of(">\n", at_);
      if (end == std::string_view::npos || text_[end] != '>') fail_at(begin, "a < without its >");
      std::string name(text_.substr(at_, end - at_));
      at_ = end + 1;
      return name;
    }
    while (is_ebnf_name_character(peek())) ++at_;
    if (at_ == begin) fail("expected the name of a rule");
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool take_definition() { return take(is_iso_ ? "=" : "::="); }
  // Whether a rule begins here, and so the one before ends.
  bool at_rule() {
    if (!is_ebnf_name_character(peek()) && (is_iso_ || peek() != '<')) return false;
    const size_t begin = at_;
    parse_name();
    skip_space();
    const bool is_rule = take_definition();
    at_ = begin;
    return is_rule;
  }
  bool take_end() { return take(";") || (is_iso_ && take(".")); }

  std::string parse_rule() {
    const size_t begin = at_;
    std::string name = parse_name();
    skip_space();
    if (!take_definition()) fail(is_iso_ ? "expected =" : "expected ::=");
    define(name, begin);
    parse_alternatives(rule_of(name), 0);
    const bool is_ended = take_end();
    skip_space();
    if (at_ < text_.size() && !at_rule()) {
      fail(is_ended ? "expected a rule" : "expected a rule, or a part of one");
    }
    return name;
  }

  bool take_bar() { return take("|") || (is_iso_ && (take("/") || take("!"))); }
  // Whether no further part of a rule stands here.
  bool at_end() {
    constexpr std::string_view kEnds = "|);";
    constexpr std::string_view kIsoEnds = "|);/!]}.";
    return at_ >= text_.size() ||
           (is_iso_ ? kIsoEnds : kEnds).find(peek()) != std::string_view::npos || at_rule();
  }

  void parse_alternatives(int rule, int depth) {
    check_depth(depth);
    do {
      skip_space();
      std::vector<Symbol> symbols;
      bool must_go_on = false;
      while (must_go_on || !at_end()) {
        symbols.push_back(parse_item(rule, depth));
        skip_space();
        must_go_on = is_iso_ && take(",");
        skip_space();
      }
      grammar_.add_production(rule, std::move(symbols), budget_);
    } while (take_bar());
  }

  // A part with what is said of it: 3 * a, a - b, a*, a+, a?, a{2,3}.
  Symbol parse_item(int rule, int depth) {
    if (is_iso_ && peek() >= '0' && peek() <= '9') {
      const int count = parse_count();
      skip_space();
      if (!take("*")) fail("expected * behind a number");
      skip_space();
      return repeated(rule, parse_difference(rule, depth), count, count);
    }
    Symbol symbol = parse_difference(rule, depth);
    int min = 0;
    int max = kNoLimit;
    if (take("+")) {
      min = 1;
    } else if (!is_iso_ && take("?")) {
      max = 1;
    } else if (!is_iso_ && take("{")) {
      parse_counts(min, max);
    } else if (!take("*")) {
      return symbol;
    }
    return repeated(rule, symbol, min, max);
  }

  void parse_counts(int& min, int& max) {
    if (peek() < '0' || peek() > '9') {
      fail("expected a count: in W3C's notation any number of times is *");
    }
    min = parse_count();
    max = min;
    if (take(",")) {
      max = kNoLimit;
      if (peek() != '}') max = parse_count();
    }
    if (!take("}")) fail("expected }");
    check_counts(min, max);
  }

  Symbol parse_difference(int rule, int depth) {
    const size_t begin = at_;
    Part part = parse_part(rule, depth);
    skip_space();
    while (take("-")) {
      skip_space();
      const Part without = parse_part(rule, depth);
      if (!part.characters || !without.characters) {
        fail_at(begin,
                "an exception (-) is taken only between single characters and classes of them");
      }
      CharacterSet others = inverted(*part.characters);
      others.insert(others.end(), without.characters->begin(), without.characters->end());
      part.characters = inverted(normalised(std::move(others)));
      part.symbol = {-1, character(*part.characters)};
      skip_space();
    }
    return part.symbol;
  }

  Part parse_part(int rule, int depth) {
    if (take("(")) return {parse_group(rule, depth, ")")};
    if (is_iso_ && take("[")) return {repeated(rule, parse_group(rule, depth, "]"), 0, 1)};
    if (is_iso_ && take("{")) return {repeated(rule, parse_group(rule, depth, "}"), 0, kNoLimit)};
    if (is_iso_ && peek() == '?') fail("special sequences (? ?) are not enforced");
    if (peek() == '"' || peek() == '\'') return parse_literal();
    if (!is_iso_ && take("[")) return of_characters(parse_class());
    if (!is_iso_ && is_character_code(text_.substr(at_))) {
      const char32_t code = parse_code();
      return of_characters({{code, code}});
    }
    const size_t begin = at_;
    const std::string name = parse_name();
    use(name, begin);
    return {{rule_of(name)}};
  }

  Part of_characters(CharacterSet set) {
    const Symbol symbol = {-1, character(set)};
    return {symbol, std::move(set)};
  }

  Symbol parse_group(int rule, int depth, std::string_view end) {
    const int group = part_of(rule);
    parse_alternatives(group, depth + 1);
    if (!take(end)) fail(fmt::format("expected {}", end));
    return {group};
  }

  // The character that a literal or class has here.
  char32_t parse_own_character() {
    if (peek() == '\\') {
      fail(
          "a \\ stands for itself in this notation and begins an escape in others, so it is not "
          "taken: #x5C is a \\ and #xA a line's end in W3C's");
    }
    return parse_plain_character();
  }

  Part parse_literal() {
    const std::string_view quote = text_.substr(at_++, 1);
    if (take("\\" + std::string(quote))) return of_characters({{'\\', '\\'}});
    std::string literal;
    CharacterSet last;
    size_t count = 0;
    while (!take(quote)) {
      const char32_t code = parse_own_character();
      append_utf8(literal, code);
      last = {{code, code}};
      ++count;
    }
    if (count == 1) return of_characters(std::move(last));
    return {text_symbol(literal)};
  }

  char32_t parse_code() {
    at_ += 2;
    constexpr int kMaxDigits = 8;
    int digits = 0;
    for (const char c : text_.substr(at_, kMaxDigits)) {
      if (hex_digit(c) < 0) break;
      ++digits;
    }
    return parse_hex(digits);
  }

  CharacterSet parse_class() {
    return parse_class_of([this] {
      return is_character_code(text_.substr(at_)) ? parse_code() : parse_own_character();
    });
  }

  bool is_iso_;
};

}  // namespace

EbnfKind ebnf_kind(std::string_view text) {
  std::string_view rule = text.substr(skip_to_first_rule(text));
  if (rule.starts_with('<')) return EbnfKind::kW3c;
  size_t end = 0;
  while (end < rule.size() && is_ebnf_name_character(rule[end])) ++end;
  if (end == 0) return EbnfKind::kNone;
  rule.remove_prefix(end);
  rule.remove_prefix(skip_to_first_rule(rule));
  if (rule.starts_with('=')) return EbnfKind::kIso;
  return rule.starts_with("::=") && has_w3c_parts(text) ? EbnfKind::kW3c : EbnfKind::kNone;
}

ContextFreeGrammar parse_ebnf(std::string_view text, EbnfKind kind, Budget& budget) {
  return EbnfParser(text, kind, budget).parse();
}

}  // namespace quire::grammar
