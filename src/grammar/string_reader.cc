#include "grammar/string_reader.h"

#include <string_view>

#include "base/hex_digit.h"
#include "base/utf8.h"
#include "grammar/json_tree.h"

namespace quire::grammar {

StringReader::Result StringReader::take(uint8_t byte, std::string& decoded) {
  switch (state_) {
    case State::kText:
      break;
    case State::kEscape:
      return take_escape(byte, decoded);
    case State::kHex:
      return take_hex(byte, decoded);
    case State::kLowEscape:
      state_ = State::kLowLetter;
      return byte == '\\' ? Result::kMore : Result::kBad;
    case State::kLowLetter:
      state_ = State::kHex;
      return byte == 'u' ? Result::kMore : Result::kBad;
  }
  if (!utf8_.empty() || byte >= 0x80) {
    utf8_ += static_cast<char>(byte);
    const auto lead = static_cast<uint8_t>(utf8_[0]);
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || begins_character(byte) != (utf8_.size() == 1)) return Result::kBad;
    if (utf8_.size() < length) return Result::kMore;
    if (utf8_length(utf8_, 0) != length) return Result::kBad;
    decoded += utf8_;
    utf8_.clear();
    return Result::kMore;
  }
  if (byte == '"') return Result::kEnd;
  if (byte < 0x20) return Result::kBad;
  if (byte == '\\') {
    state_ = State::kEscape;
  } else {
    decoded += static_cast<char>(byte);
  }
  return Result::kMore;
}

StringReader::Result StringReader::take_escape(uint8_t byte, std::string& decoded) {
  if (byte == 'u') {
    state_ = State::kHex;
    return Result::kMore;
  }
  const size_t i = kEscapeNames.find(static_cast<char>(byte));
  if (i == std::string_view::npos) return Result::kBad;
  decoded += kEscapeMeanings[i];
  state_ = State::kText;
  return Result::kMore;
}

StringReader::Result StringReader::take_hex(uint8_t byte, std::string& decoded) {
  const int digit = hex_digit(static_cast<char>(byte));
  if (digit < 0) return Result::kBad;
  code_ = code_ * 16 + static_cast<char32_t>(digit);
  if (++digits_ < 4) return Result::kMore;
  const char32_t code = code_;
  code_ = 0;
  digits_ = 0;
  const bool is_low = code >= 0xDC00 && code < 0xE000;
  if (is_low != (high_ != 0)) return Result::kBad;
  if (is_low) {
    append_utf8(decoded, 0x10000 + ((high_ - 0xD800) << 10) + (code - 0xDC00));
    high_ = 0;
  } else if (code >= 0xD800 && code < 0xDC00) {
    high_ = code;
    state_ = State::kLowEscape;
    return Result::kMore;
  } else {
    append_utf8(decoded, code);
  }
  state_ = State::kText;
  return Result::kMore;
}

std::string decode_json_string(std::string_view inside, bool with_unfinished) {
  StringReader reader;
  reader.begin();
  std::string text;
  for (const char c : inside) reader.take(static_cast<uint8_t>(c), text);
  if (with_unfinished) text += reader.unfinished();
  return text;
}

}  // namespace quire::grammar
