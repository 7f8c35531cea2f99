#include "tokenizer/char_classes.h"

#include <algorithm>
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

char32_t to_lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  const auto code_point = static_cast<std::int32_t>(c);
  const std::span<const LowerRun> runs = lower_runs();
  auto run = std::ranges::upper_bound(runs, code_point, {}, &LowerRun::first);
  // Runs of step 2 interleave: the letter may belong to the run before the nearest one.
  for (int i = 0; i < 2 && run != runs.begin(); ++i) {
    --run;
    const std::int32_t offset = code_point - run->first;
    if (offset % run->step == 0 && offset / run->step < run->count) return c + run->distance;
  }
  return c;
}

}  // namespace quire::tokenizer_internal
