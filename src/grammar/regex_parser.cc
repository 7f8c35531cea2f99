#include "grammar/regex_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/hex_digit.h"
#include "grammar/json_tree.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr int kMaxGroupDepth = 200;
constexpr int kMaxCount = 100'000;

CharacterSet digits() {
  return {{'0', '9'}};
}
CharacterSet word_characters() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
// ECMAScript's WhiteSpace and LineTerminator.
CharacterSet spaces() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}
CharacterSet all_but_line_ends() {
  return inverted({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

class RegexParser {
 public:
  RegexParser(std::string_view pattern, ScratchMemory& memory)
      : pattern_(pattern), memory_(memory) {}

  RegexNode parse() {
    RegexNode node = parse_alternatives(0);
    if (at_ < pattern_.size()) fail("an unmatched )");
    return node;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(
        fmt::format("not a regular expression that can be enforced: {} at byte {}", what, at_));
  }
  bool ended() const { return at_ >= pattern_.size(); }
  char peek() const { return ended() ? '\0' : pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  bool is_one_of(std::string_view characters) const {
    return !ended() && characters.find(peek()) != std::string_view::npos;
  }
  char32_t take_character() {
    if (ended()) fail("the end, where a character was expected");
    const size_t length = utf8_length(pattern_, at_);
    if (length == 0) fail("bytes that are no UTF-8");
    const auto lead = static_cast<unsigned char>(pattern_[at_]);
    constexpr unsigned char kLeadMasks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    char32_t code = lead & kLeadMasks[length];
    for (size_t i = 1; i < length; ++i) {
      code = code << 6 | (static_cast<unsigned char>(pattern_[at_ + i]) & 0x3F);
    }
    at_ += length;
    return code;
  }

  RegexNode parse_alternatives(int depth) {
    if (depth > kMaxGroupDepth) fail(fmt::format("groups nested deeper than {}", kMaxGroupDepth));
    RegexNode node{.kind = RegexNode::Kind::kAlternatives};
    do {
      node.children.push_back(parse_sequence(depth));
    } while (take("|"));
    if (node.children.size() == 1) return std::move(node.children.front());
    return node;
  }

  RegexNode parse_sequence(int depth) {
    RegexNode node;
    while (!ended() && peek() != '|' && peek() != ')') {
      node.children.push_back(parse_term(depth));
    }
    return node;
  }

  RegexNode parse_term(int depth) {
    RegexNode atom = parse_atom(depth);
    int min = 0;
    int max = RegexNode::kNoLimit;
    if (take("+")) {
      min = 1;
    } else if (take("?")) {
      max = 1;
    } else if (!take("*") && !parse_counts(min, max)) {
      return atom;
    }
    take("?");  // a lazy repeat matches the same texts
    if (is_one_of("+*?{")) fail("a repeat of a repeat");
    if (atom.kind == RegexNode::Kind::kAssertion) fail("a repeat of an assertion");
    RegexNode node{.kind = RegexNode::Kind::kRepeat, .min = min, .max = max};
    node.children.push_back(std::move(atom));
    return node;
  }

  // {2}, {2,} or {2,3}.
  bool parse_counts(int& min, int& max) {
    if (!take("{")) return false;
    const std::optional<int> first = parse_count();
    if (!first) fail("a { that begins no {m,n} (write \\{ for the character)");
    min = max = *first;
    if (take(",")) max = parse_count().value_or(RegexNode::kNoLimit);
    if (!take("}")) fail("a { without its } (write \\{ for the character)");
    if (max != RegexNode::kNoLimit && max < min) fail("a repeat {m,n} with n below m");
    return true;
  }

  std::optional<int> parse_count() {
    if (peek() < '0' || peek() > '9') return std::nullopt;
    int count = 0;
    while (peek() >= '0' && peek() <= '9') {
      count = count * 10 + (peek() - '0');
      if (count > kMaxCount) fail(fmt::format("a repeat beyond {}", kMaxCount));
      ++at_;
    }
    return count;
  }

  RegexNode parse_atom(int depth) {
    if (take("^")) return assertion(Nfa::Epsilon::kAtStart);
    if (take("$")) return assertion(Nfa::Epsilon::kAtEnd);
    if (take("(")) return parse_group(depth);
    if (take(".")) return characters(all_but_line_ends());
    if (take("[")) return characters(parse_class());
    if (take("\\b")) return assertion(Nfa::Epsilon::kAtWordEdge);
    if (take("\\B")) return assertion(Nfa::Epsilon::kInsideWord);
    if (take("\\")) return characters(parse_escape(/*in_class=*/false));
    if (is_one_of("*+?")) fail("a repeat of nothing");
    if (is_one_of("{}]")) {
      fail(fmt::format("a {0} that closes or repeats nothing (write \\{0} for the character)",
                       peek()));
    }
    const char32_t c = take_character();
    return characters({{c, c}});
  }

  RegexNode parse_group(int depth) {
    RegexNode look{.kind = RegexNode::Kind::kLookAhead};
    bool is_look = false;
    if (take("?=") || take("?!")) {
      is_look = true;
      look.is_negative = pattern_[at_ - 1] == '!';
    } else if (take("?<=") || take("?<!")) {
      fail("a look-behind");
    } else if (take("?<")) {
      while (!ended() && peek() != '>') ++at_;
      if (!take(">")) fail("a group's name without an end");
    } else if (!take("?:") && peek() == '?') {
      fail("a group of an unknown kind (?");
    }
    RegexNode inner = parse_alternatives(depth + 1);
    if (!take(")")) fail("an unmatched (");
    if (!is_look) return inner;
    look.children.push_back(std::move(inner));
    return look;
  }

  static RegexNode assertion(Nfa::Epsilon kind) {
    return {.kind = RegexNode::Kind::kAssertion, .assertion = kind};
  }
  RegexNode characters(CharacterSet set) {
    memory_.take(2 * sizeof(RegexNode) + set.size() * sizeof(CharacterRange));
    return {.kind = RegexNode::Kind::kCharacters, .characters = std::move(set)};
  }

  CharacterSet parse_class() {
    const bool is_inverted = take("^");
    CharacterSet set;
    while (!take("]")) {
      if (ended()) fail("an unmatched [");
      const CharacterSet first = parse_class_atom();
      const bool is_single = first.size() == 1 && first[0].first == first[0].last;
      if (peek() != '-' || pattern_.substr(at_).starts_with("-]")) {
        set.insert(set.end(), first.begin(), first.end());
        continue;
      }
      ++at_;
      const CharacterSet last = parse_class_atom();
      if (is_single && last.size() == 1 && last[0].first == last[0].last) {
        if (last[0].first < first[0].first) fail("a range that ends before it begins");
        set.push_back({first[0].first, last[0].first});
      } else {
        // A class on either side: the - stands for itself.
        set.insert(set.end(), first.begin(), first.end());
        set.insert(set.end(), last.begin(), last.end());
        set.push_back({'-', '-'});
      }
    }
    set = normalised(std::move(set));
    return is_inverted ? inverted(set) : set;
  }

  CharacterSet parse_class_atom() {
    if (take("\\")) return parse_escape(/*in_class=*/true);
    const char32_t c = take_character();
    return {{c, c}};
  }

  static CharacterSet single(char32_t c) { return {{c, c}}; }

  CharacterSet parse_escape(bool in_class) {
    const size_t begin = at_;
    const char32_t c = take_character();
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return inverted(digits());
      case 'w':
        return word_characters();
      case 'W':
        return inverted(word_characters());
      case 's':
        return spaces();
      case 'S':
        return inverted(spaces());
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'c':
        return parse_control();
      case 'x':
        return single(parse_hex(2));
      case 'u':
        return single(parse_unicode());
      case 'p':
      case 'P':
        return parse_property(c == 'P');
      case 'b':
        if (in_class) return single('\b');
        break;
      case '0':
        if (peek() < '0' || peek() > '9') return single(0);
        break;
      default:
        break;
    }
    const bool is_letter = c < 0x80 && ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (is_letter || (c >= '0' && c <= '9')) {
      const std::string_view text = pattern_.substr(begin, at_ - begin);
      at_ = begin;
      fail(c >= '1' && c <= '9' ? fmt::format("the back reference \\{}", text)
                                : fmt::format("the escape \\{}, which is not supported", text));
    }
    return single(c);
  }

  CharacterSet parse_control() {
    const char c = peek();
    if (((c | 0x20) < 'a') || ((c | 0x20) > 'z')) fail("\\c without a letter");
    ++at_;
    return single(static_cast<char32_t>(c & 0x1F));
  }

  char32_t parse_hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = hex_digit(peek());
      if (digit < 0) fail(fmt::format("an escape that needs {} hexadecimal digits", digits));
      code = code * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return code;
  }

  char32_t parse_unicode() {
    if (take("{")) {
      char32_t code = 0;
      do {
        code = code * 16 + parse_hex(1);
        if (code > 0x10FFFF) fail("a character beyond U+10FFFF");
      } while (!take("}"));
      return code;
    }
    const char32_t high = parse_hex(4);
    if (high < 0xD800 || high >= 0xDC00) return high;
    const size_t begin = at_;
    if (take("\\u")) {
      const char32_t low = parse_hex(4);
      if (low >= 0xDC00 && low < 0xE000) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    at_ = begin;
    return high;
  }

  CharacterSet parse_property(bool is_inverted) {
    if (!take("{")) fail("\\p without {");
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) fail("\\p{ without }");
    const CharacterSet set = unicode_property(pattern_.substr(at_, end - at_));
    at_ = end + 1;
    return is_inverted ? inverted(set) : set;
  }

  std::string_view pattern_;
  ScratchMemory& memory_;
  size_t at_ = 0;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern, ScratchMemory& memory) {
  return RegexParser(pattern, memory).parse();
}

}  // namespace quire::grammar
