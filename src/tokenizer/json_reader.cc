#include "tokenizer/json_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "quire/error.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool is_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDFFF;
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string name)
    : text_(text), name_(std::move(name)) {
  if (const auto offset = find_invalid_utf8(text_)) {
    throw Error(fmt::format("{}: the byte at offset {} is no valid UTF-8; JSON must be UTF-8.",
                            name_, *offset));
  }
}

void JsonReader::fail_at(std::size_t at, std::string_view what) const {
  throw Error(fmt::format("{}: {} at byte offset {}.", name_, what, at));
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonReader::take(char c) {
  if (peek() != c || at_ == text_.size()) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!take(c)) fail(fmt::format("malformed JSON: expected '{}'", c));
}

void JsonReader::expect_end() {
  skip_space();
  if (at_ != text_.size()) fail("malformed JSON: unexpected text after the end of the value");
}

char32_t JsonReader::read_hex4() {
  if (text_.size() - at_ < 4) fail("malformed JSON: an escape is cut short");
  char32_t value = 0;
  for (int i = 0; i < 4; ++i, ++at_) {
    const char c = text_[at_];
    const bool digit = c >= '0' && c <= '9';
    const char lower = static_cast<char>(c | 0x20);
    if (!digit && (lower < 'a' || lower > 'f')) fail("malformed JSON: expected a hex digit");
    value = value * 16 + static_cast<char32_t>(digit ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

void JsonReader::read_escape(std::string& out) {
  if (at_ == text_.size()) fail("malformed JSON: a string is not closed");
  const char c = text_[at_++];
  switch (c) {
    case 'b':
      out.push_back('\b');
      return;
    case 'f':
      out.push_back('\f');
      return;
    case 'n':
      out.push_back('\n');
      return;
    case 'r':
      out.push_back('\r');
      return;
    case 't':
      out.push_back('\t');
      return;
    case '"':
    case '\\':
    case '/':
      out.push_back(c);
      return;
    case 'u':
      break;
    default:
      fail("malformed JSON: unknown escape");
  }
  char32_t value = read_hex4();
  if (value >= 0xD800 && value <= 0xDBFF && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const char32_t low = read_hex4();
    if (low < 0xDC00 || low > 0xDFFF) fail("malformed JSON: half of a surrogate pair");
    value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
  }
  if (is_surrogate(value)) fail("malformed JSON: half of a surrogate pair");
  append_utf8(out, value);
}

std::string_view JsonReader::read_string(std::string& scratch) {
  if (!take('"')) fail("malformed JSON: expected a string");
  const std::size_t start = at_;
  bool escaped = false;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (static_cast<unsigned char>(text_[at_]) < 0x20) {
      fail("malformed JSON: a control character inside a string");
    }
    if (text_[at_] != '\\') {
      if (escaped) scratch.push_back(text_[at_]);
      ++at_;
      continue;
    }
    if (!escaped) scratch.assign(text_, start, at_ - start);
    escaped = true;
    ++at_;
    read_escape(scratch);
  }
  if (at_ == text_.size()) fail("malformed JSON: a string is not closed");
  const std::string_view value = escaped ? scratch : text_.substr(start, at_ - start);
  ++at_;
  return value;
}

std::int64_t JsonReader::read_integer(std::int64_t max) {
  skip_space();
  const std::size_t start = at_;
  std::int64_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    value = value * 10 + (text_[at_] - '0');
    if (value > max) fail(fmt::format("an integer is larger than {}", max));
    ++at_;
  }
  if (at_ == start) fail(fmt::format("expected an integer from 0 to {}", max));
  return value;
}

void JsonReader::skip_string() {
  for (++at_; at_ < text_.size(); ++at_) {
    if (text_[at_] == '"') {
      ++at_;
      return;
    }
    if (text_[at_] == '\\') ++at_;
  }
  at_ = text_.size();
  fail("malformed JSON: a string is not closed");
}

std::string_view JsonReader::raw_value() {
  skip_space();
  const std::size_t start = at_;
  std::string open;  // the closing brackets that are awaited
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') {
      skip_string();
    } else if (c == '{' || c == '[') {
      if (open.size() == kMaxDepth) {
        fail(fmt::format("JSON is nested deeper than {} levels", kMaxDepth));
      }
      open.push_back(c == '{' ? '}' : ']');
      ++at_;
    } else if (c == '}' || c == ']' || c == ',') {
      if (open.empty()) break;
      if (c != ',') {
        if (open.back() != c) fail("malformed JSON: brackets do not match");
        open.pop_back();
      }
      ++at_;
    } else {
      ++at_;
      continue;
    }
    if (open.empty()) break;
  }
  if (!open.empty()) fail("malformed JSON: a bracket is not closed");
  if (at_ == start) fail("malformed JSON: expected a value");
  return text_.substr(start, at_ - start);
}

}  // namespace quire::tokenizer_internal
