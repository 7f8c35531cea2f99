#include "loadgen/json_cursor.h"

#include <charconv>

#include "base/utf8.h"

namespace quire::loadgen {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// The four hexadecimal digits that `text` opens with.
uint32_t code_unit(std::string_view text) {
  uint32_t unit = 0;
  std::from_chars(text.data(), text.data() + 4, unit, 16);
  return unit;
}

// Reads \uXXXX, and the second half of a pair, whose "\u" has been taken off `raw`.
uint32_t take_code_point(std::string_view& raw) {
  constexpr uint32_t kReplacement = 0xfffd;
  const uint32_t first = code_unit(raw);
  raw.remove_prefix(4);
  if (first < 0xd800 || first > 0xdfff) return first;
  if (first > 0xdbff || !raw.starts_with("\\u")) return kReplacement;
  const uint32_t second = code_unit(raw.substr(2));
  if (second < 0xdc00 || second > 0xdfff) return kReplacement;
  raw.remove_prefix(6);
  return 0x10000 + ((first - 0xd800) << 10U) + (second - 0xdc00);
}

}  // namespace

char JsonCursor::peek() {
  for (; position_ < text_.size(); ++position_) {
    const char c = text_[position_];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return c;
  }
  return '\0';
}

bool JsonCursor::take(char c) {
  if (peek() != c || position_ == text_.size()) return false;
  ++position_;
  return true;
}

bool JsonCursor::read_raw_string(std::string_view& raw) {
  if (!take('"')) return false;
  const size_t start = position_;
  while (position_ < text_.size()) {
    const char c = text_[position_++];
    if (c == '"') {
      raw = text_.substr(start, position_ - 1 - start);
      return true;
    }
    if (static_cast<unsigned char>(c) < 0x20) return false;
    if (c != '\\') continue;
    if (position_ == text_.size()) return false;
    const char escaped = text_[position_++];
    if (escaped == 'u') {
      for (int i = 0; i < 4; ++i) {
        if (position_ == text_.size() || !is_hex(text_[position_++])) return false;
      }
    } else if (std::string_view("\"\\/bfnrt").find(escaped) == std::string_view::npos) {
      return false;
    }
  }
  return false;
}

bool JsonCursor::read_integer(int64_t& value) {
  peek();
  const size_t start = position_;
  if (!skip_number()) return false;
  const char* end = text_.data() + position_;
  const auto [stop, error] = std::from_chars(text_.data() + start, end, value);
  return error == std::errc() && stop == end;
}

bool JsonCursor::skip_value() {
  std::string_view ignored;
  switch (peek()) {
    case '{':
      return read_object([this](std::string_view) { return skip_value(); });
    case '[':
      return read_array([this] { return skip_value(); });
    case '"':
      return read_raw_string(ignored);
    case 't':
      return skip_word("true");
    case 'f':
      return skip_word("false");
    case 'n':
      return skip_word("null");
    default:
      return skip_number();
  }
}

bool JsonCursor::skip_word(std::string_view word) {
  if (text_.substr(position_, word.size()) != word) return false;
  position_ += word.size();
  return true;
}

bool JsonCursor::skip_digits() {
  const size_t start = position_;
  while (position_ < text_.size() && is_digit(text_[position_])) ++position_;
  return position_ > start;
}

bool JsonCursor::skip_number() {
  const auto next_is = [this](char c) { return position_ < text_.size() && text_[position_] == c; };
  if (next_is('-')) ++position_;
  if (next_is('0')) {
    ++position_;
  } else if (!skip_digits()) {
    return false;
  }
  if (next_is('.')) {
    ++position_;
    if (!skip_digits()) return false;
  }
  if (next_is('e') || next_is('E')) {
    ++position_;
    if (next_is('+') || next_is('-')) ++position_;
    if (!skip_digits()) return false;
  }
  return true;
}

void append_unescaped(std::string_view raw, std::string& text) {
  while (true) {
    const size_t backslash = raw.find('\\');
    text += raw.substr(0, backslash);
    if (backslash == std::string_view::npos) return;
    const char escaped = raw[backslash + 1];
    raw.remove_prefix(backslash + 2);
    constexpr std::string_view kEscaped = "bfnrt";
    constexpr std::string_view kMeaning = "\b\f\n\r\t";
    if (escaped == 'u') {
      append_utf8(text, take_code_point(raw));
    } else if (const size_t index = kEscaped.find(escaped); index != std::string_view::npos) {
      text += kMeaning[index];
    } else {
      text += escaped;
    }
  }
}

}  // namespace quire::loadgen
