#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <nlohmann/detail/conversions/to_chars.hpp>

#include "base/check.h"

namespace quire {
namespace {

enum class Byte : uint8_t { kPlain, kEscaped, kMultibyte };

constexpr std::array<Byte, 256> classify_bytes() {
  std::array<Byte, 256> classes{};
  for (std::size_t c = 0; c < 0x20; ++c) classes[c] = Byte::kEscaped;
  for (std::size_t c = 0x80; c < 0x100; ++c) classes[c] = Byte::kMultibyte;
  classes['"'] = Byte::kEscaped;
  classes['\\'] = Byte::kEscaped;
  return classes;
}

constexpr std::array<Byte, 256> kByteClasses = classify_bytes();
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

void append_escape(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4];
      out += kHex[static_cast<unsigned char>(c) & 15];
  }
}

// A character's bytes as far as they are well-formed (Unicode 15, table 3-7).
struct Character {
  std::size_t size;  // >= 1
  bool whole;
};

// Reads a character that begins with a byte of 0x80 or more.
Character read_character(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  std::size_t size = 0;
  unsigned char least = 0x80;  // of the second byte
  unsigned char most = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) least = 0xA0;
    if (lead == 0xED) most = 0x9F;  // no surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) least = 0x90;
    if (lead == 0xF4) most = 0x8F;
  } else {
    return {1, false};
  }
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size() || byte(i) < least || byte(i) > most) return {i, false};
    least = 0x80;
    most = 0xBF;
  }
  return {size, true};
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  std::size_t plain = 0;  // where the run begins that stands as it is
  std::size_t i = 0;
  while (i < text.size()) {
    const Byte kind = kByteClasses[static_cast<unsigned char>(text[i])];
    if (kind == Byte::kPlain) {
      ++i;
      continue;
    }
    const Character character =
        kind == Byte::kEscaped ? Character{1, false} : read_character(text.substr(i));
    if (!character.whole) {
      out.append(text, plain, i - plain);
      if (kind == Byte::kEscaped) {
        append_escape(out, text[i]);
      } else {
        out += kReplacement;
      }
      plain = i + character.size;
    }
    i += character.size;
  }
  out.append(text, plain);
}

JsonWriter& JsonWriter::open(bool object) {
  check(depth_ < kMaxDepth, "JSON is written deeper than JsonWriter::kMaxDepth");
  begin_value();
  out_ += object ? '{' : '[';
  const uint64_t bit = uint64_t{1} << depth_;
  is_object_ = object ? is_object_ | bit : is_object_ & ~bit;
  ++depth_;
  has_items_ &= ~(bit << 1);
  return *this;
}

JsonWriter& JsonWriter::close(bool object) {
  check(depth_ > 0 && in_object() == object && !after_key_,
        "JSON is closed that is not open, or within a member");
  out_ += object ? '}' : ']';
  --depth_;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  check(in_object() && !after_key_, "a JSON key is written where none may stand");
  const uint64_t bit = uint64_t{1} << depth_;
  out_ += (has_items_ & bit) != 0 ? ",\"" : "\"";
  has_items_ |= bit;
  append_json_escaped(out_, name);
  out_ += "\":";
  after_key_ = true;
  return *this;
}

void JsonWriter::begin_value() {
  if (in_object()) {
    check(after_key_, "a JSON object's value is written without its key");
    after_key_ = false;
    return;
  }
  const uint64_t bit = uint64_t{1} << depth_;
  check(depth_ > 0 || !begun(), "a second JSON document is written behind the first");
  if ((has_items_ & bit) != 0) out_ += ',';
  has_items_ |= bit;
}

JsonWriter& JsonWriter::null() {
  begin_value();
  out_ += "null";
  return *this;
}

JsonWriter& JsonWriter::value(bool value) {
  begin_value();
  out_ += value ? "true" : "false";
  return *this;
}

// nlohmann's digits are not always the shortest, so its own function writes them.
JsonWriter& JsonWriter::value(double value) {
  if (!std::isfinite(value)) return null();
  begin_value();
  std::array<char, 64> digits{};
  char* const end = nlohmann::detail::to_chars(digits.data(), digits.data() + digits.size(), value);
  out_.append(digits.data(), end);
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  begin_value();
  out_ += '"';
  append_json_escaped(out_, text);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(int64_t number) {
  begin_value();
  std::array<char, 24> digits{};
  out_.append(digits.data(),
              std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
  return *this;
}

JsonWriter& JsonWriter::unsigned_integer(uint64_t number) {
  begin_value();
  std::array<char, 24> digits{};
  out_.append(digits.data(),
              std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
  return *this;
}

}  // namespace quire
