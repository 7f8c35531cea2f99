#pragma once
// GPT-2's alphabet, in which byte-level BPE spells bytes as printable characters: printable Latin-1
// stands for itself, the other bytes follow from U+0100 on in order (bytes_to_unicode in
// https://github.com/openai/gpt-2/blob/master/src/encoder.py).
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {

struct ByteAlphabet {
  static constexpr std::int16_t kNoByte = -1;

  std::array<char16_t, 256> char_of{};        // by byte
  std::array<std::int16_t, 0x144> byte_of{};  // by character; kNoByte where it stands for none

  constexpr ByteAlphabet() {
    byte_of.fill(kNoByte);
    char16_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
      const char16_t c = printable ? static_cast<char16_t>(byte) : next++;
      char_of[byte] = c;
      byte_of[c] = static_cast<std::int16_t>(byte);
    }
  }
};

inline constexpr ByteAlphabet kByteAlphabet;

// Spells `bytes` in the alphabet, at the end of `out`.
inline void append_spelled_bytes(std::string& out, std::string_view bytes) {
  for (const char c : bytes) {
    append_utf8(out, kByteAlphabet.char_of[static_cast<unsigned char>(c)]);
  }
}

}  // namespace quire::tokenizer_internal
