#pragma once
// Which classes a code point belongs to, as Hugging Face's tokenizers sees them (each of its parts
// carries its own version of Unicode; scripts/make_unicode_tables.py asks it). Looking one up is
// one load. Immutable once made; 1.1 MB.
#include <cstdint>
#include <vector>

namespace quire::tokenizer_internal {

enum CharClass : std::uint8_t {
  kLetter = 1,                // \p{L}
  kNumber = 2,                // \p{N}
  kSpace = 4,                 // \s
  kWord = 8,                  // \w of Rust's regex
  kPunctuation = 16,          // ASCII punctuation and \p{P}
  kNumeric = 32,              // char::is_numeric of Rust
  kNfcUnsafe = 64,            // NFC may change it, reorder it, or join it to what precedes
  kUnknownToNormalizer = 128  // a normaliser must leave it alone
};

class CharClasses {
 public:
  CharClasses();

  std::uint8_t of(char32_t code_point) const { return classes_[code_point]; }
  bool is(char32_t code_point, std::uint8_t classes) const {
    return (classes_[code_point] & classes) != 0;
  }

 private:
  std::vector<std::uint8_t> classes_;
};

// The lower case of a code point where that is one code point, else `c` itself (U+0130).
char32_t to_lower(char32_t c);

}  // namespace quire::tokenizer_internal
