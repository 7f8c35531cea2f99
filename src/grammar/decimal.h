#pragma once
// JSON's numbers as exact decimal numbers of any length.
//
// Thread safety: a value type.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::grammar {

// (-1)^negative * 0.DIGITS * 10^exponent, without zeros at either end of DIGITS; 0 has none.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;

  // Nothing if `text` is no JSON number, or its exponent is beyond kMaxExponent.
  static std::optional<Decimal> parse(std::string_view text);

  bool is_zero() const { return digits.empty(); }
  // Without an exponent: "-12.5"; 0 is "0".
  std::string plain() const;
  // The same text for equal values.
  std::string scientific() const;
  // The digits before and after the point of plain(), without the sign; "" where there are none.
  std::string integer_digits() const;
  std::string fraction_digits() const;

  // Beyond the range of a double, and of any bound that compiles.
  static constexpr int64_t kMaxExponent = 2000;
};

}  // namespace quire::grammar
