#include "grammar/decimal.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::grammar {

std::optional<Decimal> Decimal::parse(std::string_view text) {
  Decimal value;
  value.negative = text.starts_with('-');
  if (value.negative) text.remove_prefix(1);
  const size_t e = text.find_first_of("eE");
  int64_t exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    const bool minus = digits.starts_with('-');
    if (minus || digits.starts_with('+')) digits.remove_prefix(1);
    if (digits.empty()) return std::nullopt;
    for (const char c : digits) {
      if (c < '0' || c > '9') return std::nullopt;
      exponent = std::min<int64_t>(exponent * 10 + (c - '0'), int64_t{1} << 40);
    }
    if (minus) exponent = -exponent;
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  value.digits = text.substr(0, point);
  if (point < text.size()) value.digits += text.substr(point + 1);
  if (value.digits.empty() || value.digits.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  value.exponent = static_cast<int64_t>(point) + exponent;
  const size_t first = value.digits.find_first_not_of('0');
  if (first == std::string::npos) return Decimal{};
  value.digits.erase(0, first);
  value.digits.erase(value.digits.find_last_not_of('0') + 1);
  value.exponent -= static_cast<int64_t>(first);
  if (value.exponent > kMaxExponent || value.exponent < -kMaxExponent) return std::nullopt;
  return value;
}

std::string Decimal::integer_digits() const {
  if (is_zero() || exponent <= 0) return "";
  std::string out = digits.substr(0, static_cast<size_t>(exponent));
  out.resize(static_cast<size_t>(exponent), '0');
  return out;
}

std::string Decimal::fraction_digits() const {
  if (is_zero()) return "";
  if (exponent <= 0) return std::string(static_cast<size_t>(-exponent), '0') + digits;
  const auto point = static_cast<size_t>(exponent);
  return point < digits.size() ? digits.substr(point) : "";
}

std::string Decimal::plain() const {
  const std::string integer = integer_digits();
  const std::string fraction = fraction_digits();
  return fmt::format("{}{}{}{}", negative ? "-" : "", integer.empty() ? "0" : integer,
                     fraction.empty() ? "" : ".", fraction);
}

std::string Decimal::scientific() const {
  if (is_zero()) return "0";
  return fmt::format("{}0.{}e{}", negative ? "-" : "", digits, exponent);
}

}  // namespace quire::grammar
