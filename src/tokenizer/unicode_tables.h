#pragma once
// The raw tables behind CharClasses (tokenizer/char_classes.h), which unpacks them. Classes are
// runs of code points: skip, take, skip, take...
#include <cstdint>
#include <span>

namespace quire::tokenizer_internal {

std::span<const std::uint32_t> letter_runs();
std::span<const std::uint32_t> number_runs();
std::span<const std::uint32_t> space_runs();
std::span<const std::uint32_t> word_runs();
std::span<const std::uint32_t> punctuation_runs();
std::span<const std::uint32_t> numeric_runs();
std::span<const std::uint32_t> nfc_unsafe_runs();
std::span<const std::uint32_t> unknown_to_normalizer_runs();

// The letters first, first + step, ... (count of them), each with its lower case `distance` away.
struct LowerRun {
  std::int32_t first;
  std::int32_t count;
  std::int32_t step;
  std::int32_t distance;
};
std::span<const LowerRun> lower_runs();  // in ascending order, and not overlapping

}  // namespace quire::tokenizer_internal
