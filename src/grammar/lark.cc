#include "grammar/lark.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/utf8.h"
#include "grammar/json_tree.h"
#include "grammar/regex.h"
#include "grammar/rule_parser.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

// Lark's module common, as expressions.
constexpr std::array<std::pair<std::string_view, std::string_view>, 25> kCommonTerminals = {{
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+\\-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_FLOAT",
     "[+\\-]?(?:[0-9]+[eE][+\\-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+\\-]?(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)(?:[eE][+\\-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[a-zA-Z]"},
    {"WORD", "[a-zA-Z]+"},
    {"CNAME", "[a-zA-Z_][a-zA-Z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "\\/\\/[^\\n]*"},
    {"C_COMMENT", "\\/\\*(?:[^*]|\\*+[^*\\/])*\\*+\\/"},
    {"SQL_COMMENT", "--[^\\n]*"},
    {"_EXP", "[eE][+\\-]?[0-9]+"},
}};

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_lark_name_character(char c) {
  return is_name_begin(c) || (c >= '0' && c <= '9');
}
// Its first letter decides.
bool is_terminal(std::string_view name) {
  const size_t letter = name.find_first_not_of('_');
  return letter != std::string_view::npos && name[letter] >= 'A' && name[letter] <= 'Z';
}

class LarkParser final : private RuleParser {
 public:
  LarkParser(std::string_view text, Budget& budget)
      : RuleParser(text, budget), has_ignored_(text.find("%ignore") != std::string_view::npos) {}

  ContextFreeGrammar parse() {
    // What is ignored comes behind each terminal of a rule, and before the first.
    ignored_ = rule_of("%ignore");
    grammar_.add_production(ignored_, {}, budget_);
    for (skip_lines(); at_ < text_.size(); skip_lines()) parse_statement();
    const int whole = rule_of("%start");
    grammar_.add_production(whole, {{ignored_}, {rule_of("start")}}, budget_);
    define("%start", 0);
    if (!is_defined("start")) throw Error("the grammar has no rule start");
    return finish("%start");
  }

 private:
  // What rules say of themselves: whether they are terminals, in which nothing is ignored.
  struct Context {
    int rule;
    bool is_terminal;
  };

  bool skip_comment() {
    if (!text_.substr(at_).starts_with("//") && peek() != '#') return false;
    at_ = std::min(text_.find('\n', at_), text_.size());
    return true;
  }
  // White space and comments within a line.
  void skip_space() {
    do {
      while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
    } while (at_ < text_.size() && skip_comment());
  }
  void skip_lines() {
    for (skip_space(); peek() == '\n'; skip_space()) ++at_;
  }
  // Lines go on before a |, and within groups.
  void skip_to_next_part(int depth) {
    skip_space();
    const size_t end = at_;
    skip_lines();
    if (depth == 0 && peek() != '|') at_ = end;
  }
  bool at_end_of_line() const { return at_ >= text_.size() || peek() == '\n'; }
  void expect_end_of_line() {
    skip_space();
    if (!at_end_of_line()) fail("expected the end of the line");
  }

  std::string_view parse_name() {
    const size_t begin = at_;
    if (is_name_begin(peek())) {
      while (is_lark_name_character(peek())) ++at_;
    }
    if (at_ == begin) fail("expected the name of a rule or terminal");
    return text_.substr(begin, at_ - begin);
  }

  void parse_statement() {
    if (peek() == '%') {
      parse_directive();
      return;
    }
    // Marks that shape the tree alone.
    while (peek() == '?' || peek() == '!') ++at_;
    const size_t begin = at_;
    const std::string name(parse_name());
    if (peek() == '{') fail(fmt::format("the template {} is not supported", name));
    if (peek() == '.') fail(fmt::format("the priority of {} is not supported", name));
    skip_space();
    if (!take(":")) fail("expected :");
    define(name, begin);
    parse_alternatives({rule_of(name), is_terminal(name)}, 0);
    expect_end_of_line();
  }

  void parse_directive() {
    const size_t begin = at_;
    if (take("%ignore")) {
      skip_space();
      const int part = part_of(ignored_);
      parse_alternatives({part, true}, 0);
      grammar_.add_production(ignored_, {{ignored_}, {part}}, budget_);
      expect_end_of_line();
      return;
    }
    if (take("%import")) {
      parse_import(begin);
      expect_end_of_line();
      return;
    }
    const size_t end = std::min(text_.find_first_of(" \t\r\n", begin), text_.size());
    fail(fmt::format("{} is not supported", text_.substr(begin, end - begin)));
  }

  void parse_import(size_t begin) {
    skip_space();
    if (!take("common")) fail_at(begin, "%import of other than common is not supported");
    if (take(".")) {
      const std::string_view name = parse_name();
      skip_space();
      std::string_view alias = name;
      if (take("->")) {
        skip_space();
        alias = parse_name();
      }
      add_common(name, alias, begin);
      return;
    }
    skip_space();
    if (!take("(")) fail_at(begin, "%import of other than common is not supported");
    do {
      skip_lines();
      const std::string_view name = parse_name();
      add_common(name, name, begin);
      skip_lines();
    } while (take(","));
    if (!take(")")) fail("a ( without its )");
  }

  void add_common(std::string_view name, std::string_view alias, size_t place) {
    const auto found =
        std::ranges::find(kCommonTerminals, name, [](const auto& one) { return one.first; });
    if (found == kCommonTerminals.end()) {
      fail_at(place, fmt::format("%import common.{} is not supported", name));
    }
    const size_t end = at_;
    define(alias, place);
    at_ = end;
    grammar_.add_production(rule_of(alias), {{-1, expression(found->second)}}, budget_);
  }

  void parse_alternatives(const Context& context, int depth) {
    check_depth(depth);
    do {
      skip_space();
      std::vector<Symbol> symbols;
      for (skip_to_next_part(depth); !at_end_of_part(); skip_to_next_part(depth)) {
        parse_item(context, depth, symbols);
      }
      grammar_.add_production(context.rule, std::move(symbols), budget_);
      parse_alias();
      skip_to_next_part(depth);
    } while (take("|"));
  }
  bool at_end_of_part() const {
    return at_end_of_line() || peek() == '|' || peek() == ')' || peek() == ']' ||
           text_.substr(at_).starts_with("->");
  }
  // A name for the tree alone.
  void parse_alias() {
    if (!take("->")) return;
    skip_space();
    parse_name();
  }

  void parse_item(const Context& context, int depth, std::vector<Symbol>& symbols) {
    const Symbol symbol = parse_symbol(context, depth);
    skip_space();
    int min = 1;
    int max = 1;
    if (take("*")) {
      min = 0;
      max = kNoLimit;
    } else if (take("+")) {
      max = kNoLimit;
    } else if (take("?")) {
      min = 0;
    } else if (take("~")) {
      skip_space();
      min = max = parse_count();
      if (take("..")) max = parse_count();
      check_counts(min, max);
    } else {
      symbols.push_back(symbol);
      return;
    }
    symbols.push_back(repeated(context.rule, symbol, min, max));
  }

  Symbol parse_symbol(const Context& context, int depth) {
    const bool is_optional = peek() == '[';
    if (take("(") || take("[")) {
      const int group = part_of(context.rule);
      parse_alternatives({group, context.is_terminal}, depth + 1);
      if (!take(is_optional ? "]" : ")")) {
        fail(is_optional ? "a [ without its ]" : "a ( without its )");
      }
      if (is_optional) grammar_.add_production(group, {}, budget_);
      return {group};
    }
    if (peek() == '"') return terminal_symbol(context, parse_literal_or_range());
    if (peek() == '/') return terminal_symbol(context, {-1, parse_expression()});
    const size_t begin = at_;
    const std::string_view name = parse_name();
    if (peek() == '{') fail(fmt::format("the template {} is not supported", name));
    if (context.is_terminal && !is_terminal(name)) {
      fail_at(begin, fmt::format("a terminal cannot use the rule {}", name));
    }
    use(name, begin);
    const Symbol symbol = {rule_of(name)};
    return is_terminal(name) ? terminal_symbol(context, symbol) : symbol;
  }

  // In rules, with what is ignored behind it.
  Symbol terminal_symbol(const Context& context, const Symbol& symbol) {
    if (context.is_terminal || !has_ignored_) return symbol;
    const int both = part_of(context.rule);
    grammar_.add_production(both, {symbol, {ignored_}}, budget_);
    return {both};
  }

  Symbol parse_literal_or_range() {
    const std::u32string first = parse_literal();
    if (take("..")) {
      const size_t begin = at_;
      if (peek() != '"') fail("expected a literal behind ..");
      const std::u32string last = parse_literal();
      if (first.size() != 1 || last.size() != 1) fail_at(begin, "a range of other than characters");
      if (last < first) fail_at(begin, "a range that ends before it begins");
      return {-1, character({{first[0], last[0]}})};
    }
    if (take("i")) return {-1, in_any_case(first)};
    std::string text;
    for (const char32_t c : first) append_utf8(text, c);
    return text_symbol(text);
  }

  DfaPtr in_any_case(const std::u32string& text) {
    Nfa nfa;
    int32_t next = nfa.accept();
    for (size_t i = text.size(); i-- > 0;) {
      CharacterSet set = {{text[i], text[i]}};
      for (const auto other : {utf8proc_tolower(static_cast<utf8proc_int32_t>(text[i])),
                               utf8proc_toupper(static_cast<utf8proc_int32_t>(text[i]))}) {
        set.push_back({static_cast<char32_t>(other), static_cast<char32_t>(other)});
      }
      next = nfa.add_characters(normalised(std::move(set)), next);
    }
    return nfa.determinise(next, budget_);
  }

  std::u32string parse_literal() {
    ++at_;
    std::u32string literal;
    while (!take("\"")) literal += parse_character();
    return literal;
  }
  char32_t parse_character() {
    constexpr std::string_view kNames = "nrtf\\\"/";
    constexpr std::string_view kMeanings = "\n\r\t\f\\\"/";
    return parse_escaped_character(kNames, kMeanings);
  }

  // Between slashes.
  DfaPtr parse_expression() {
    const size_t begin = at_++;
    for (; peek() != '/'; ++at_) {
      if (at_end_of_line()) fail_at(begin, "an expression without its closing /");
      if (peek() == '\\') ++at_;
    }
    const std::string_view pattern = text_.substr(begin + 1, at_ - begin - 1);
    ++at_;
    if (is_lark_name_character(peek())) {
      fail(fmt::format("the flag {} of an expression is not supported", peek()));
    }
    for (const std::string_view look : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (pattern.find(look) != std::string_view::npos) {
        fail_at(begin, fmt::format("the look-around {}...) is not supported", look));
      }
    }
    const size_t end = at_;
    try {
      DfaPtr dfa = expression(pattern);
      at_ = end;
      return dfa;
    } catch (const Error& error) {
      fail_at(begin, fmt::format("/{}/: {}", pattern, error.what()));
    }
  }

  DfaPtr expression(std::string_view pattern) {
    return compile_regex_dfa(pattern, RegexMatch::kWhole, budget_);
  }

  bool has_ignored_;
  int ignored_ = 0;
};

}  // namespace

bool is_lark(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '#' || text.substr(at).starts_with("//")) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\n') {
      ++at;
    } else {
      break;
    }
  }
  text.remove_prefix(at);
  if (text.starts_with('%') || text.starts_with('?') || text.starts_with('!')) return true;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.substr(colon).starts_with("::=")) return false;
  const std::string_view name = text.substr(0, colon);
  // Before the colon of a rule there is a name, maybe with a priority or a template's parameters.
  return !name.empty() && is_name_begin(name.front()) &&
         name.find_first_of("\n\"") == std::string_view::npos;
}

ContextFreeGrammar parse_lark(std::string_view text, Budget& budget) {
  return LarkParser(text, budget).parse();
}

}  // namespace quire::grammar
