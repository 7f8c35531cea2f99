#include "tokenizer/scanner.h"

#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char32_t kLongS =
    0x17F;  // the one character outside ASCII whose case folds to a letter here

class Scan {
 public:
  Scan(std::string_view text, const CharClasses& classes) : text_(text), classes_(classes) {}

  bool at_end(std::size_t at) const { return at == text_.size(); }

  CodePoint code_point(std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text_[at]);
    return byte < 0x80 ? CodePoint{byte, 1} : decode_at(text_, at);
  }

  // The class bits that matter here, of the character at `at`; 0 for all others.
  std::uint8_t class_at(std::size_t at) const {
    return classes_.of(code_point(at).value) & (kLetter | kNumber | kSpace);
  }
  bool starts(std::size_t at, std::uint8_t classes) const {
    return !at_end(at) && (class_at(at) & classes) != 0;
  }
  bool starts_other(std::size_t at) const { return !at_end(at) && class_at(at) == 0; }

  std::size_t skip_letters(std::size_t at) const {
    while (!at_end(at)) {
      const CodePoint c = code_point(at);
      if (!classes_.is(c.value, kLetter)) break;
      at += c.size;
    }
    return at;
  }
  std::size_t skip_numbers(std::size_t at, std::size_t most) const {
    for (; most > 0 && starts(at, kNumber); --most) at += code_point(at).size;
    return at;
  }
  std::size_t skip_others(std::size_t at) const {
    while (starts_other(at)) at += code_point(at).size;
    return at;
  }
  std::size_t skip_newlines(std::size_t at) const {
    while (!at_end(at) && is_newline(text_[at])) ++at;
    return at;
  }

  // 's, 't, 're, 've, 'm, 'll, 'd after the apostrophe at `at`: the end, or `at` when there is
  // none.
  std::size_t skip_contraction(std::size_t at, bool any_case) const {
    const std::string_view rest = text_.substr(at + 1, 2);
    const auto letter = [&](std::size_t i) {
      if (i >= rest.size()) return '\0';
      const char c = rest[i];
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = letter(0);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    const char second = letter(1);
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    if (any_case && rest.size() == 2 && code_point(at + 1).value == kLongS) return at + 3;
    return at;
  }

  // \s+(?!\S)|\s+ at a space: white space up to the last one before a word, which goes with that
  // word. With `break_at_newline`, \s*[\r\n]+ comes first: up to the last line break, if there is
  // one.
  std::size_t skip_spaces(std::size_t at, bool break_at_newline) const {
    std::size_t end = at;
    std::size_t last = at;     // where the last space of the run starts
    std::size_t newline = at;  // the end of its last line break
    while (starts(end, kSpace)) {
      last = end;
      end += code_point(end).size;
      if (is_newline(text_[last])) newline = end;
    }
    if (break_at_newline && newline > at) return newline;
    return at_end(end) || last == at ? end : last;
  }

  static bool is_newline(char c) { return c == '\n' || c == '\r'; }

 private:
  std::string_view text_;
  const CharClasses& classes_;
};

}  // namespace

std::optional<ScannerKind> find_scanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return ScannerKind::kGpt2;
  if (pattern == kQwenPattern) return ScannerKind::kQwen;
  if (pattern == kLlama3Pattern) return ScannerKind::kLlama3;
  return std::nullopt;
}

std::size_t scan_gpt2(std::string_view text, std::size_t at, const CharClasses& classes) {
  const Scan scan(text, classes);
  if (text[at] == '\'') {
    const std::size_t end = scan.skip_contraction(at, false);
    if (end != at) return end;
  }
  const std::size_t start = text[at] == ' ' ? at + 1 : at;
  if (!scan.at_end(start)) {
    const std::uint8_t first = scan.class_at(start);
    if ((first & kLetter) != 0) return scan.skip_letters(start);
    if ((first & kNumber) != 0) return scan.skip_numbers(start, text.size());
    if (first == 0) return scan.skip_others(start);
  }
  return scan.skip_spaces(at, false);
}

std::size_t scan_qwen(std::string_view text, std::size_t at, const CharClasses& classes,
                      std::size_t max_digits) {
  const Scan scan(text, classes);
  if (text[at] == '\'') {
    const std::size_t end = scan.skip_contraction(at, true);
    if (end != at) return end;
  }
  const CodePoint c = scan.code_point(at);
  const std::uint8_t first = classes.of(c.value);
  if ((first & kLetter) != 0) return scan.skip_letters(at + c.size);
  if ((first & kNumber) != 0) return scan.skip_numbers(at, max_digits);
  if (!Scan::is_newline(text[at]) && scan.starts(at + c.size, kLetter)) {
    return scan.skip_letters(at + c.size);
  }
  if ((first & kSpace) == 0) return scan.skip_newlines(scan.skip_others(at));
  if (text[at] == ' ' && scan.starts_other(at + 1)) {
    return scan.skip_newlines(scan.skip_others(at + 1));
  }
  return scan.skip_spaces(at, true);
}

}  // namespace quire::tokenizer_internal
