#pragma once
// Writes and counts characters of UTF-8.
//
// Thread safety: free functions.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Appends a code point, at most U+10FFFF; one of a surrogate has three bytes that are not valid
// UTF-8.
void append_utf8(std::string& out, char32_t code_point);

// Whether `byte` begins a character: it is no continuation byte.
constexpr bool begins_character(uint8_t byte) {
  return (byte & 0xC0) != 0x80;
}

// How many characters begin in a text.
size_t num_characters(std::string_view text);

}  // namespace quire
