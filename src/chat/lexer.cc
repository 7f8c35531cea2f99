#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/utf8.h"
#include "chat/text.h"
#include "quire/error.h"

namespace quire::chat_internal {
namespace {

// Longer than any name in use; bounds what a look-up compares.
constexpr std::size_t kMaxNameBytes = 1000;

// Newlines as "\n" only, and without the one at the end.
std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_name_start(char32_t c) {
  return c == '_' || is_alpha(c);
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_source(source)) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) lex_data();
    add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  bool at(std::string_view text) const {
    return std::string_view(source_).substr(pos_, text.size()) == text;
  }
  char peek(std::size_t ahead = 0) const {
    return pos_ + ahead < source_.size() ? source_[pos_ + ahead] : '\0';
  }

  void advance(std::size_t count) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                   source_.begin() + static_cast<std::ptrdiff_t>(pos_ + count), '\n'));
    pos_ += count;
  }

  void skip_space() {
    while (pos_ < source_.size()) {
      std::size_t next = pos_;
      if (!is_space(next_code_point(source_, next))) break;
      advance(next - pos_);
    }
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t i = from; i + 1 < source_.size(); ++i) {
      const char second = source_[i + 1];
      if (source_[i] == '{' && (second == '{' || second == '%' || second == '#')) return i;
    }
    return std::string::npos;
  }

  // The text up to the next tag, cut back by the tag's whitespace control, then the tag.
  void lex_data() {
    const std::size_t tag = find_tag(pos_);
    const std::size_t end = tag == std::string::npos ? source_.size() : tag;
    std::string_view text = std::string_view(source_).substr(pos_, end - pos_);
    if (tag != std::string::npos) text = cut_before_tag(text, tag);
    if (!text.empty()) add(TokenKind::kData, std::string(text));
    advance(end - pos_);
    if (tag != std::string::npos) lex_tag();
  }

  std::string_view cut_before_tag(std::string_view text, std::size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') return strip(text, nullptr, false, true);
    if (sign == '+' || source_[tag + 1] == '{') return text;
    // lstrip_blocks: drop what is only blanks between the start of the line and the tag.
    const std::size_t newline = text.rfind('\n');
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    const bool starts_line = line_start > 0 || line_starting_;
    const bool blank = strip(text.substr(line_start), nullptr, true, true).empty();
    return starts_line && blank ? text.substr(0, line_start) : text;
  }

  void lex_tag() {
    const char kind = peek(1);
    const int line = line_;
    advance(2);
    if (kind == '#') return lex_comment(line);
    if (peek() == '-' || peek() == '+') {
      // "{{+" is no whitespace control but a unary plus only for variables; Jinja takes it as
      // control.
      advance(1);
    }
    if (kind == '%' && lex_raw(line)) return;
    tokens_.push_back({kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, line, ""});
    lex_code(kind == '{');
  }

  void after_tag(bool strip_space, bool trim_newline) {
    if (strip_space) {
      skip_space();
    } else if (trim_newline && peek() == '\n') {
      advance(1);
    }
    line_starting_ = pos_ > 0 && source_[pos_ - 1] == '\n';
  }

  void lex_comment(int line) {
    const std::size_t end = source_.find("#}", pos_);
    if (end == std::string::npos) fail_at(line, "this comment is not closed by '#}'.");
    const char sign = end > pos_ ? source_[end - 1] : '\0';
    advance(end + 2 - pos_);
    after_tag(sign == '-', sign != '+');
  }

  // Position after `word` and the spaces around it, or npos where something else stands at `from`.
  std::size_t match_word(std::size_t from, std::string_view word) const {
    const auto skip = [&](std::size_t at) {
      while (at < source_.size() && is_space(static_cast<unsigned char>(source_[at]))) ++at;
      return at;
    };
    from = skip(from);
    if (std::string_view(source_).substr(from, word.size()) != word) return std::string::npos;
    return skip(from + word.size());
  }

  // {% raw %} ... {% endraw %}; false where the block is another one.
  bool lex_raw(int line) {
    std::size_t end = match_word(pos_, "raw");
    if (end == std::string::npos) return false;
    const bool strip_space = end < source_.size() && source_[end] == '-';
    if (strip_space) ++end;
    if (std::string_view(source_).substr(end, 2) != "%}") return false;
    advance(end + 2 - pos_);
    if (strip_space) skip_space();
    line_starting_ = source_[pos_ - 1] == '\n';
    for (std::size_t tag = source_.find("{%", pos_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const bool has_sign =
          tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+');
      std::size_t close = match_word(tag + (has_sign ? 3 : 2), "endraw");
      if (close == std::string::npos) continue;
      const char sign = close < source_.size() ? source_[close] : '\0';
      if (sign == '-' || sign == '+') ++close;
      if (std::string_view(source_).substr(close, 2) != "%}") continue;
      const auto text = cut_before_tag(std::string_view(source_).substr(pos_, tag - pos_), tag);
      if (!text.empty()) add(TokenKind::kData, std::string(text));
      advance(close + 2 - pos_);
      after_tag(sign == '-', sign != '+');
      return true;
    }
    fail_at(line, "this raw block is not closed by '{% endraw %}'.");
  }

  // Expression tokens up to the end of the tag.
  void lex_code(bool variable) {
    std::vector<char> open;
    const int start_line = line_;
    while (true) {
      skip_space();
      if (pos_ >= source_.size()) {
        fail_at(start_line,
                variable ? "'{{' is not closed by '}}'." : "'{%' is not closed by '%}'.");
      }
      if (open.empty() && lex_end(variable)) return;
      lex_code_token(open);
    }
  }

  bool lex_end(bool variable) {
    const char sign = peek();
    const bool signed_end = sign == '-' || (sign == '+' && !variable);
    const std::size_t at_sign = signed_end ? 1 : 0;
    if (std::string_view(source_).substr(pos_ + at_sign, 2) != (variable ? "}}" : "%}"))
      return false;
    add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
    advance(at_sign + 2);
    after_tag(sign == '-', !variable && sign != '+');
    return true;
  }

  void lex_code_token(std::vector<char>& open) {
    const char c = peek();
    std::size_t next = pos_;
    if (is_digit(c)) {
      lex_number();
    } else if (c == '\'' || c == '"') {
      lex_string(c);
    } else if (is_name_start(next_code_point(source_, next))) {
      lex_name();
    } else {
      lex_operator(open);
    }
  }

  void lex_name() {
    std::size_t end = pos_;
    while (end < source_.size()) {
      std::size_t next = end;
      const char32_t c = next_code_point(source_, next);
      if (!is_name_start(c) && !is_decimal(c)) break;
      end = next;
    }
    if (end - pos_ > kMaxNameBytes) {
      fail_at(line_, "a name is longer than " + std::to_string(kMaxNameBytes) + " bytes.");
    }
    add(TokenKind::kName, source_.substr(pos_, end - pos_));
    pos_ = end;
  }

  // Digits with single underscores between them, from `at`.
  std::size_t skip_digits(std::size_t at) const {
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at > 0 && is_digit(source_[at - 1]) &&
                                      at + 1 < source_.size() && is_digit(source_[at + 1])))) {
      ++at;
    }
    return at;
  }

  std::string without_underscores(std::size_t from, std::size_t to) const {
    std::string out = source_.substr(from, to - from);
    std::erase(out, '_');
    return out;
  }

  void lex_number() {
    if (lex_prefixed_integer()) return;
    std::size_t end = skip_digits(pos_);
    bool is_float = false;
    // "x.0.1" is two item accesses, no float.
    const bool after_dot = pos_ > 0 && source_[pos_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        end = skip_digits(end + 1);
        is_float = true;
      }
      std::size_t exponent = end;
      if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
        ++exponent;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
          ++exponent;
        if (exponent < source_.size() && is_digit(source_[exponent])) {
          end = skip_digits(exponent);
          is_float = true;
        }
      }
    }
    const std::string digits = without_underscores(pos_, end);
    if (is_float) {
      add(TokenKind::kFloat, digits);
      tokens_.back().number = std::strtod(digits.c_str(), nullptr);
    } else {
      // As in Python, a leading zero ends the number unless all digits are zeros.
      if (digits.size() > 1 && digits[0] == '0' &&
          digits.find_first_not_of('0') != std::string::npos) {
        fail_at(line_, "a decimal number must not start with 0.");
      }
      add_integer(digits, 10);
    }
    pos_ = end;
  }

  bool lex_prefixed_integer() {
    const char kind = static_cast<char>(peek(1) | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (peek() != '0' || base == 0) return false;
    const std::string_view digits = base == 16  ? "0123456789abcdefABCDEF_"
                                    : base == 8 ? "01234567_"
                                                : "01_";
    std::size_t end = source_.find_first_not_of(digits, pos_ + 2);
    if (end == std::string::npos) end = source_.size();
    const std::string text = without_underscores(pos_ + 2, end);
    if (text.empty()) return false;
    add_integer(text, base);
    pos_ = end;
    return true;
  }

  void add_integer(const std::string& digits, int base) {
    add(TokenKind::kInteger, digits);
    const char* last = digits.data() + digits.size();
    if (std::from_chars(digits.data(), last, tokens_.back().integer, base).ec != std::errc()) {
      fail_at(line_, "the integer " + digits.substr(0, 40) + " does not fit in 64 bits.");
    }
  }

  void lex_string(char quote) {
    const int line = line_;
    std::size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line, "a string is not closed.");
    const std::string_view body = std::string_view(source_).substr(pos_ + 1, end - pos_ - 1);
    add(TokenKind::kString, unescape(body, line));
    advance(end + 1 - pos_);
  }

  // Python's escapes. What Python leaves as it is ("\d") stays.
  static std::string unescape(std::string_view body, int line) {
    std::string out;
    out.reserve(body.size());
    for (std::size_t i = 0; i < body.size();) {
      if (body[i] != '\\' || i + 1 >= body.size()) {
        out += body[i++];
        continue;
      }
      const char c = body[i + 1];
      static constexpr std::string_view kFrom = "\\'\"abfnrtv";
      static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
      const std::size_t simple = kFrom.find(c);
      if (simple != std::string_view::npos) {
        out += kTo[simple];
        i += 2;
      } else if (c == '\n') {
        i += 2;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i = append_hex_escape(out, body, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, line);
      } else if (c >= '0' && c <= '7') {
        i = append_octal_escape(out, body, i);
      } else if (c == 'N') {
        fail_at(line, "\\N{...} escapes are not supported; write the character itself.");
      } else {
        out += '\\';
        ++i;
      }
    }
    return out;
  }

  static std::size_t append_hex_escape(std::string& out, std::string_view body, std::size_t at,
                                       std::size_t digits, int line) {
    const std::string_view hex = body.substr(at + 2, digits);
    std::uint32_t code = 0;
    const auto result = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() < digits || result.ptr != hex.data() + hex.size()) {
      fail_at(line, "a \\x, \\u or \\U escape lacks hexadecimal digits.");
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
      fail_at(line, "the escape \\" + std::string(body.substr(at + 1, digits + 1)) +
                        " is no Unicode character.");
    }
    append_utf8(out, code);
    return at + 2 + digits;
  }

  static std::size_t append_octal_escape(std::string& out, std::string_view body, std::size_t at) {
    char32_t code = 0;
    std::size_t i = at + 1;
    for (; i < body.size() && i < at + 4 && body[i] >= '0' && body[i] <= '7'; ++i) {
      code = code * 8 + static_cast<char32_t>(body[i] - '0');
    }
    append_utf8(out, code);
    return i;
  }

  void lex_operator(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 6> kTwoChars = {
        "//", "**", "==", "!=", ">=", "<="};
    for (std::string_view op : kTwoChars) {
      if (at(op)) return add_operator(std::string(op));
    }
    const char c = peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
      std::size_t next = pos_;
      next_code_point(source_, next);
      fail_at(line_, "the character " + string_repr(source_.substr(pos_, next - pos_)) +
                         " has no meaning inside a tag.");
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) fail_at(line_, std::string("unexpected '") + c + "'.");
      open.pop_back();
    }
    add_operator(std::string(1, c));
  }

  void add_operator(std::string op) {
    pos_ += op.size();
    add(TokenKind::kOperator, std::move(op));
  }

  std::string source_;
  std::size_t pos_ = 0;
  int line_ = 1;
  // Whether the text at pos_ is at the start of a line, as lstrip_blocks needs to know.
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void fail_at(int line, std::string_view message) {
  throw Error("Chat template, line " + std::to_string(line) + ": " + std::string(message));
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace quire::chat_internal
