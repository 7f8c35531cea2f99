#include "tokenizer/char_classes.h"

#include <cstddef>
#include <span>

#include "tokenizer/unicode_tables.h"

namespace quire::tokenizer_internal {
namespace {

constexpr std::size_t kCodePoints = 0x110000;

void mark(std::vector<std::uint8_t>& classes, std::span<const std::uint32_t> runs, CharClass bit) {
  std::size_t at = 0;
  for (std::size_t i = 0; i + 1 < runs.size(); i += 2) {
    at += runs[i];
    for (const std::size_t end = at + runs[i + 1]; at < end; ++at) classes[at] |= bit;
  }
}

}  // namespace

CharClasses::CharClasses() : classes_(kCodePoints, 0) {
  mark(classes_, letter_runs(), kLetter);
  mark(classes_, number_runs(), kNumber);
  mark(classes_, space_runs(), kSpace);
  mark(classes_, word_runs(), kWord);
  mark(classes_, punctuation_runs(), kPunctuation);
  mark(classes_, numeric_runs(), kNumeric);
  mark(classes_, nfc_unsafe_runs(), kNfcUnsafe);
  mark(classes_, unknown_to_normalizer_runs(), kUnknownToNormalizer);
}

}  // namespace quire::tokenizer_internal
