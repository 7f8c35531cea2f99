#pragma once
// Decodes a JSON string byte by byte to UTF-8.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::grammar {

// The letters of one-letter escapes, and the characters that they mean. All except the last must be
// escaped.
inline constexpr std::string_view kEscapeNames = "\"\\bfnrt/";
inline constexpr std::string_view kEscapeMeanings = "\"\\\b\f\n\r\t/";

class StringReader {
 public:
  enum class Result { kMore, kEnd, kBad };

  // Begins after the opening quote.
  void begin() { *this = StringReader(); }
  // Takes a byte. `decoded` gets the bytes of a character once it is complete. kEnd after the
  // closing quote; kBad for what cannot be in a JSON string: control characters, unknown escapes,
  // invalid UTF-8, lone surrogates.
  Result take(uint8_t byte, std::string& decoded);
  // The bytes of an incomplete character, unless it is an escape.
  const std::string& unfinished() const { return utf8_; }

 private:
  Result take_escape(uint8_t byte, std::string& decoded);
  Result take_hex(uint8_t byte, std::string& decoded);

  enum class State : uint8_t { kText, kEscape, kHex, kLowEscape, kLowLetter };
  State state_ = State::kText;
  char32_t code_ = 0;  // of \uXXXX so far
  int digits_ = 0;     // of it
  char32_t high_ = 0;  // a high surrogate that waits for its low one
  std::string utf8_;   // of a character of several bytes, so far
};

// Decodes the inside of a string, or its beginning. An incomplete character at the end is left out;
// with `with_unfinished` its bytes are kept, unless it is an escape.
std::string decode_json_string(std::string_view inside, bool with_unfinished = false);

}  // namespace quire::grammar
