#pragma once
// Kinds of text by the bytes that it has, each with all that the kinds before it have: where any
// text of a kind may follow, many tokens are known to be allowed without looking at each.
//
// Thread safety: free functions.
#include <array>
#include <cstddef>
#include <cstdint>

namespace quire::grammar {

enum class TextKind : uint8_t {
  kLower,    // a to z
  kLetters,  // and A to Z
  kWord,     // and digits and _
  kPlain,    // and all of ASCII that a JSON string has without an escape
  kUnicode,  // and all other characters, as UTF-8
  kOther
};
inline constexpr size_t kNumTextKinds = static_cast<size_t>(TextKind::kOther);

// The first kind that has the byte. What is not ASCII makes whole characters, or begins one.
inline TextKind text_kind(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return TextKind::kLower;
  if (byte >= 'A' && byte <= 'Z') return TextKind::kLetters;
  if ((byte >= '0' && byte <= '9') || byte == '_') return TextKind::kWord;
  if (byte < 0x20 || byte == '"' || byte == '\\') return TextKind::kOther;
  return byte < 0x80 ? TextKind::kPlain : TextKind::kUnicode;
}

// Which byte of a character comes next in UTF-8.
struct Utf8Place {
  uint8_t more_bytes = 0;  // of the character that has begun
  uint8_t least_next = 0x80;
  uint8_t most_next = 0xBF;

  // False where a byte cannot come.
  bool take(uint8_t byte) {
    if (more_bytes > 0) {
      if (byte < least_next || byte > most_next) return false;
      *this = {.more_bytes = static_cast<uint8_t>(more_bytes - 1)};
      return true;
    }
    if (byte < 0x80) return true;
    if (byte < 0xC2 || byte > 0xF4) return false;
    more_bytes = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    // Neither longer than needed, nor surrogates, nor beyond U+10FFFF.
    if (byte == 0xE0) least_next = 0xA0;
    if (byte == 0xED) most_next = 0x9F;
    if (byte == 0xF0) least_next = 0x90;
    if (byte == 0xF4) most_next = 0x8F;
    return true;
  }
};

}  // namespace quire::grammar
