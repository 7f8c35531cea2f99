#pragma once
// The raw character classes, as runs of code points: skip, take, skip, take... Use CharClasses
// (tokenizer/char_classes.h), which unpacks them.
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

}  // namespace quire::tokenizer_internal
