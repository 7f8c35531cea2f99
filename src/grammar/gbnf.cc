#include "grammar/gbnf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/hex_digit.h"
#include "grammar/json_tree.h"
#include "grammar/nfa.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr int kMaxGbnfDepth = 200;
constexpr int kMaxGbnfCount = 2000;
constexpr int kNoLimit = -1;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, Budget& budget) : text_(text), budget_(budget) {}

  ContextFreeGrammar parse() {
    skip_space();
    while (at_ < text_.size()) parse_rule();
    for (const auto& [name, place] : used_) {
      if (!defined_.contains(name)) {
        at_ = place;
        fail(fmt::format("there is no rule {}", name));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end() || !defined_.contains("root")) {
      throw Error("the grammar has no rule root");
    }
    grammar_.root = root->second;
    grammar_.finish(budget_);
    return std::move(grammar_);
  }

 private:
  using Symbol = ContextFreeGrammar::Symbol;

  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
    const auto line = std::ranges::count(before, '\n') + 1;
    const size_t begin = before.rfind('\n');
    const size_t column = before.size() - (begin == std::string_view::npos ? 0 : begin + 1) + 1;
    throw Error(fmt::format("the grammar's line {}, column {}: {}", line, column, what));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
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

  int rule_of(std::string_view name) {
    const auto [found, is_new] = rules_.try_emplace(std::string(name), 0);
    if (is_new) found->second = grammar_.add_rule(std::string(name));
    return found->second;
  }
  int part_of(int rule) {
    return grammar_.add_rule(std::string(grammar_.names[static_cast<size_t>(rule)]));
  }

  void parse_rule() {
    const size_t begin = at_;
    const std::string name(parse_name());
    skip_space();
    if (!take("::=")) fail("expected ::=");
    if (!defined_.emplace(name, begin).second) {
      at_ = begin;
      fail(fmt::format("the rule {} is there twice", name));
    }
    skip_space();
    parse_alternatives(rule_of(name), 0);
    if (at_ < text_.size() && !at_rule()) fail("expected a rule, or a part of one");
  }

  void parse_alternatives(int rule, int depth) {
    if (depth > kMaxGbnfDepth) fail(fmt::format("groups nested deeper than {}", kMaxGbnfDepth));
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
    used_.emplace(std::string(name), begin);
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
    if (max != kNoLimit && max < min) fail("a repeat {m,n} with n below m");
  }
  int parse_count() {
    if (peek() < '0' || peek() > '9') fail("expected a count");
    int count = 0;
    while (peek() >= '0' && peek() <= '9') {
      count = count * 10 + (text_[at_++] - '0');
      if (count > kMaxGbnfCount) fail(fmt::format("a repeat beyond {}", kMaxGbnfCount));
    }
    return count;
  }

  // Left recursion, of which Earley's algorithm holds only one item at each place.
  Symbol repeated(int rule, const Symbol& symbol, int min, int max) {
    const int all = part_of(rule);
    std::vector<Symbol> first(static_cast<size_t>(min), symbol);
    if (max == kNoLimit) {
      grammar_.add_production(all, std::move(first), budget_);
      grammar_.add_production(all, {{all}, symbol}, budget_);
      return {all};
    }
    int rest = -1;
    for (int i = min; i < max; ++i) {
      // One more and what may follow it, or nothing.
      const int optional = part_of(rule);
      grammar_.add_production(optional, {}, budget_);
      std::vector<Symbol> more;
      more.push_back(symbol);
      if (rest >= 0) more.push_back({rest});
      grammar_.add_production(optional, std::move(more), budget_);
      rest = optional;
    }
    if (rest >= 0) first.push_back({rest});
    grammar_.add_production(all, std::move(first), budget_);
    return {all};
  }

  Symbol text_symbol(const std::string& text) {
    DfaPtr& dfa = texts_[text];
    if (dfa == nullptr) {
      Nfa nfa;
      dfa = nfa.determinise(nfa.add_text(text, nfa.accept()), budget_);
    }
    return {-1, dfa};
  }
  DfaPtr character(const CharacterSet& set) {
    Nfa nfa;
    return nfa.determinise(nfa.add_characters(set, nfa.accept()), budget_);
  }

  std::string parse_literal() {
    std::string literal;
    while (!take("\"")) append_utf8(literal, parse_character());
    return literal;
  }
  CharacterSet parse_class() {
    const bool is_inverted = take("^");
    CharacterSet set;
    while (!take("]")) {
      const char32_t first = parse_character();
      char32_t last = first;
      if (peek() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        last = parse_character();
      }
      if (last < first) fail("a range that ends before it begins");
      set.push_back({first, last});
    }
    set = normalised(std::move(set));
    return is_inverted ? inverted(set) : set;
  }

  char32_t parse_character() {
    const size_t length = utf8_length(text_, at_);
    if (length == 0 || peek() == '\n') fail("expected a character; is a closing \" or ] missing?");
    if (!take("\\")) {
      constexpr unsigned char kLeadMasks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
      char32_t code = static_cast<unsigned char>(text_[at_]) & kLeadMasks[length];
      for (size_t i = 1; i < length; ++i) {
        code = code << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
      }
      at_ += length;
      return code;
    }
    if (take("x")) return parse_hex(2);
    if (take("u")) return parse_hex(4);
    if (take("U")) return parse_hex(8);
    constexpr std::string_view kNames = "nrt\\\"[]-^";
    constexpr std::string_view kMeanings = "\n\r\t\\\"[]-^";
    const size_t i = at_ < text_.size() ? kNames.find(peek()) : std::string_view::npos;
    if (i == std::string_view::npos) fail("an unknown escape");
    ++at_;
    return static_cast<unsigned char>(kMeanings[i]);
  }
  char32_t parse_hex(int digits) {
    uint64_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const int digit = hex_digit(peek());
      if (digit < 0) fail(fmt::format("expected {} hexadecimal digits", digits));
      code = code * 16 + static_cast<uint64_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape of no character");
    return static_cast<char32_t>(code);
  }

  std::string_view text_;
  Budget& budget_;
  size_t at_ = 0;
  ContextFreeGrammar grammar_;
  std::map<std::string, int> rules_;
  std::map<std::string, size_t> defined_;  // and where
  std::map<std::string, size_t> used_;
  std::map<std::string, DfaPtr> texts_;
};

}  // namespace

ContextFreeGrammar parse_gbnf(std::string_view text, Budget& budget) {
  return GbnfParser(text, budget).parse();
}

}  // namespace quire::grammar
