#include "grammar/rule_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hex_digit.h"
#include "grammar/json_tree.h"
#include "grammar/visible_text.h"
#include "quire/error.h"

namespace quire::grammar {

void RuleParser::fail(std::string_view what) const {
  const std::string_view before = text_.substr(0, std::min(at_, text_.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t begin = before.rfind('\n');
  const size_t column = before.size() - (begin == std::string_view::npos ? 0 : begin + 1) + 1;
  throw Error(
      fmt::format("the grammar's line {}, column {}: {}", line, column, visible_text(what)));
}

void RuleParser::fail_at(size_t place, std::string_view what) {
  at_ = place;
  fail(what);
}

bool RuleParser::take(std::string_view what) {
  if (!text_.substr(at_).starts_with(what)) return false;
  at_ += what.size();
  return true;
}

int RuleParser::parse_count() {
  if (peek() < '0' || peek() > '9') fail("expected a count");
  int count = 0;
  while (peek() >= '0' && peek() <= '9') {
    count = count * 10 + (text_[at_++] - '0');
    if (count > kMaxCount) fail(fmt::format("a repeat beyond {}", kMaxCount));
  }
  return count;
}

void RuleParser::check_counts(int min, int max) const {
  if (max != kNoLimit && max < min) fail("a repeat {m,n} with n below m");
}

void RuleParser::check_depth(int depth) const {
  if (depth > kMaxDepth) fail(fmt::format("groups nested deeper than {}", kMaxDepth));
}

char32_t RuleParser::parse_plain_character() {
  const size_t length = utf8_length(text_, at_);
  if (length == 0 || peek() == '\n') fail("expected a character; is a closing mark missing?");
  constexpr unsigned char kLeadMasks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t code = static_cast<unsigned char>(text_[at_]) & kLeadMasks[length];
  for (size_t i = 1; i < length; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text_[at_ + i]) & 0x3F);
  }
  at_ += length;
  return code;
}

char32_t RuleParser::parse_hex(int digits) {
  uint64_t code = 0;
  for (int i = 0; i < digits; ++i, ++at_) {
    const int digit = hex_digit(peek());
    if (digit < 0) fail(fmt::format("expected {} hexadecimal digits", digits));
    code = code * 16 + static_cast<uint64_t>(digit);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("an escape of no character");
  return static_cast<char32_t>(code);
}

char32_t RuleParser::parse_escaped_character(std::string_view names, std::string_view meanings) {
  if (!take("\\")) return parse_plain_character();
  if (take("x")) return parse_hex(2);
  if (take("u")) return parse_hex(4);
  if (take("U")) return parse_hex(8);
  const size_t i = at_ < text_.size() ? names.find(peek()) : std::string_view::npos;
  if (i == std::string_view::npos) fail("an unknown escape");
  ++at_;
  return static_cast<unsigned char>(meanings[i]);
}

int RuleParser::add_rule(std::string name) {
  budget_.take(name.size() + sizeof(std::string) + sizeof(std::vector<int>));
  return grammar_.add_rule(std::move(name));
}

CharacterSet RuleParser::parse_class_of(const std::function<char32_t()>& take_character) {
  const bool is_inverted = take("^");
  CharacterSet set;
  while (!take("]")) {
    const char32_t first = take_character();
    char32_t last = first;
    if (peek() == '-' && !text_.substr(at_).starts_with("-]")) {
      ++at_;
      last = take_character();
    }
    if (last < first) fail("a range that ends before it begins");
    set.push_back({first, last});
  }
  set = normalised(std::move(set));
  return is_inverted ? inverted(set) : set;
}

int RuleParser::rule_of(std::string_view name) {
  const auto [found, is_new] = rules_.try_emplace(std::string(name), 0);
  if (is_new) found->second = add_rule(std::string(name));
  return found->second;
}

int RuleParser::part_of(int rule) {
  return add_rule(grammar_.names[static_cast<size_t>(rule)]);
}

void RuleParser::define(std::string_view name, size_t place) {
  if (defined_.emplace(std::string(name), place).second) return;
  fail_at(place, fmt::format("the rule {} is there twice", name));
}

// Left recursion: Earley's algorithm holds only one item of it at each place.
RuleParser::Symbol RuleParser::repeated(int rule, const Symbol& symbol, int min, int max) {
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

RuleParser::Symbol RuleParser::text_symbol(const std::string& text) {
  DfaPtr& dfa = texts_[text];
  if (dfa == nullptr) {
    Nfa nfa;
    dfa = nfa.determinise(nfa.add_text(text, nfa.accept()), budget_);
  }
  return {-1, dfa};
}

DfaPtr RuleParser::character(const CharacterSet& set) {
  Nfa nfa;
  return nfa.determinise(nfa.add_characters(set, nfa.accept()), budget_);
}

ContextFreeGrammar RuleParser::finish(std::string_view root) {
  for (const auto& [name, place] : used_) {
    if (!defined_.contains(name)) fail_at(place, fmt::format("there is no rule {}", name));
  }
  if (!is_defined(root)) throw Error(fmt::format("the grammar has no rule {}", root));
  grammar_.root = rule_of(root);
  grammar_.finish(budget_);
  return std::move(grammar_);
}

}  // namespace quire::grammar
