// Numbers from text, with Python's int() and float().
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "chat/builtins.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

// Text without the single underscores that may stand between digits; nullopt where one is
// misplaced.
std::optional<std::string> drop_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
}

// Takes a prefix like "0x" off where `base` allows it, and settles base 0.
std::string_view take_base_prefix(std::string_view digits, int& base) {
  if (digits.size() < 2 || digits[0] != '0') {
    if (base == 0) base = 10;
    return digits;
  }
  const char kind = lower(digits[1]);
  const int named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    base = named;
    return digits.substr(2);
  }
  if (base == 0) base = 10;
  return digits;
}

}  // namespace

std::optional<std::int64_t> parse_int(Runtime& runtime, std::string_view text, int base) {
  const auto plain = drop_underscores(strip(text, nullptr, true, true));
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  digits = take_base_prefix(digits, base);
  if (digits.empty() || base < 2 || base > 36) return std::nullopt;
  std::uint64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (result.ptr != digits.data() + digits.size()) return std::nullopt;
  const std::uint64_t limit = static_cast<std::uint64_t>(INT64_MAX) + (negative ? 1 : 0);
  if (result.ec != std::errc() || value > limit) {
    runtime.fail("the integer " + std::string(digits.substr(0, 40)) + " does not fit in 64 bits.");
  }
  return negative ? static_cast<std::int64_t>(0 - value) : static_cast<std::int64_t>(value);
}

std::optional<double> parse_float(std::string_view text) {
  const auto plain = drop_underscores(strip(text, nullptr, true, true));
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  std::string word(digits.substr(0, 9));
  std::transform(word.begin(), word.end(), word.begin(), lower);
  double value = 0;
  if (digits.size() == word.size() && (word == "inf" || word == "infinity")) {
    value = HUGE_VAL;
  } else if (digits.size() == word.size() && word == "nan") {
    value = std::nan("");
  } else {
    if (digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
    // strtod and not from_chars: it rounds what is too large to infinity, as Python does.
    const std::string copy(digits);
    char* end = nullptr;
    value = std::strtod(copy.c_str(), &end);
    if (end != copy.c_str() + copy.size()) return std::nullopt;
  }
  return negative ? -value : value;
}

std::int64_t float_to_int(Runtime& runtime, double value) {
  if (std::isnan(value) || std::isinf(value)) {
    runtime.fail("the float " + float_repr(value) + " is no integer.");
  }
  const double whole = std::trunc(value);
  if (whole < -9223372036854775808.0 || whole >= 9223372036854775808.0) {
    runtime.fail("the float " + float_repr(value) + " does not fit in a 64-bit integer.");
  }
  return static_cast<std::int64_t>(whole);
}

}  // namespace quire::chat_internal
