#pragma once
// UTF-8: the parts of it that a tokenizer needs. Free functions, no state.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace quire::tokenizer_internal {

struct CodePoint {
  char32_t value;
  std::size_t size;  // bytes, 1 to 4
};

// The code point that starts at `at` in valid UTF-8; requires at < text.size().
inline CodePoint decode_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

// The code point that ends right before `end` in valid UTF-8; requires end > 0.
inline CodePoint decode_before(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return {decode_at(text, start).value, end - start};
}

// The offset of the first byte that does not belong to valid UTF-8 (no surrogates, nothing above
// U+10FFFF, no overlong forms); nullopt when there is none.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// How a sequence of bytes begins: `valid` bytes of one character, or else `invalid` bytes that can
// never be one (the longest prefix of a character, as Unicode's "maximal subpart"), or neither: a
// prefix that needs more bytes.
struct Utf8Prefix {
  std::size_t valid = 0;
  std::size_t invalid = 0;
};
Utf8Prefix classify_utf8_prefix(std::string_view bytes);

// Moves the text that `bytes` makes for certain to the end of `out`, U+FFFD for each maximal
// invalid part, and leaves in `bytes` only an unfinished character; with `at_end`, that becomes one
// U+FFFD.
void drain_utf8_lossy(std::string& bytes, bool at_end, std::string& out);

}  // namespace quire::tokenizer_internal
