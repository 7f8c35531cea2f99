#include "chat/format_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/utf8.h"
#include "chat/builtins.h"
#include "chat/text.h"

namespace quire::chat_internal {
namespace {

class SpecParser {
 public:
  SpecParser(Runtime& runtime, std::string_view text) : runtime_(runtime), text_(text) {}

  FormatSpec parse() {
    FormatSpec spec;
    parse_align(spec);
    if (at("+-") || at(" ")) spec.sign = take();
    if (at("#")) spec.alternate = take() != '\0';
    if (at("0")) {
      take();
      if (spec.align == '\0') {
        spec.fill = "0";
        spec.align = '=';
      }
    }
    spec.width = parse_number(kMaxWidth);
    if (at(",_")) spec.group = take();
    if (at(".")) {
      take();
      if (!at("0123456789")) fail();
      spec.precision = static_cast<int>(parse_number(kMaxPrecision));
    }
    if (pos_ < text_.size()) spec.type = take();
    if (pos_ != text_.size()) fail();
    return spec;
  }

 private:
  [[noreturn]] void fail() const {
    runtime_.fail("the format specification '" +
                  std::string(text_.substr(0, byte_offset(text_, 50))) + "' is not valid.");
  }
  bool at(std::string_view chars) const {
    return pos_ < text_.size() && chars.find(text_[pos_]) != std::string_view::npos;
  }
  char take() { return text_[pos_++]; }

  void parse_align(FormatSpec& spec) {
    if (text_.empty()) return;
    const std::size_t size = utf8_length(static_cast<unsigned char>(text_[0]));
    if (size < text_.size() &&
        std::string_view("<>^=").find(text_[size]) != std::string_view::npos) {
      spec.fill = std::string(text_.substr(0, size));
      spec.align = text_[size];
      pos_ = size + 1;
    } else if (at("<>^=")) {
      spec.align = take();
    }
  }

  std::size_t parse_number(std::size_t limit) {
    std::size_t number = 0;
    while (at("0123456789")) {
      number = number * 10 + static_cast<std::size_t>(take() - '0');
      if (number > limit) {
        runtime_.fail("a width or precision in a format is above " + std::to_string(limit) + ".");
      }
    }
    return number;
  }

  Runtime& runtime_;
  std::string_view text_;
  std::size_t pos_ = 0;
};

MarkedText pad(const FormatSpec& spec, const std::string& prefix, const MarkedText& body,
               char fallback) {
  const std::size_t length = count_code_points(prefix) + count_code_points(body.text());
  const std::size_t missing = spec.width > length ? spec.width - length : 0;
  const char align = spec.align == '\0' ? fallback : spec.align;
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string left, right;
  for (std::size_t i = 0; i < before; ++i) left += spec.fill;
  for (std::size_t i = before; i < missing; ++i) right += spec.fill;
  MarkedText out(align == '=' ? prefix + left : left + prefix);
  out.append(body);
  if (align != '=') out.append(right);
  return out;
}

MarkedText pad(const FormatSpec& spec, const std::string& prefix, const std::string& body,
               char fallback) {
  return pad(spec, prefix, MarkedText(body), fallback);
}

std::string sign_of(const FormatSpec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

std::string group_digits(const std::string& digits, char separator, std::size_t size) {
  if (separator == '\0') return digits;
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out;
}

std::string digits_in_base(std::uint64_t value, unsigned base, bool upper) {
  const std::string_view digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[value % base];
    value /= base;
  } while (value != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

std::string float_digits(const FormatSpec& spec, double magnitude, char type, int precision) {
  const std::array<char, 8> pattern = {'%',
                                       spec.alternate ? '#' : '.',
                                       spec.alternate ? '.' : '*',
                                       spec.alternate ? '*' : type,
                                       spec.alternate ? type : '\0',
                                       '\0'};
  std::array<char, 1024> buffer{};
  const int length =
      std::snprintf(buffer.data(), buffer.size(), pattern.data(), precision, magnitude);
  return std::string(buffer.data(), static_cast<std::size_t>(length));
}

}  // namespace

MarkedText format_int(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  const std::int64_t number = value.as_int();
  const std::uint64_t magnitude =
      number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  if (spec.type == 'c') {
    if (number < 0 || number > 0x10ffff || (number >= 0xd800 && number <= 0xdfff)) {
      runtime.fail("the number " + std::to_string(number) + " is no Unicode character.");
    }
    std::string out;
    append_utf8(out, static_cast<char32_t>(number));
    return pad(spec, "", out, '<');
  }
  const char type = spec.type == '\0' ? 'd' : spec.type;
  const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  const std::string digits =
      group_digits(digits_in_base(magnitude, base, type == 'X'), spec.group, base == 10 ? 3 : 4);
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + type : "";
  return pad(spec, sign_of(spec, number < 0) + prefix, digits, '>');
}

MarkedText format_float(const Value& value, const FormatSpec& spec) {
  double number = value.as_double();
  char type = spec.type;
  if (type == '%') number *= 100;
  const bool negative = std::signbit(number) && !std::isnan(number);
  const double magnitude = std::fabs(number);
  std::string digits;
  if (!std::isfinite(number)) {
    digits = std::isnan(number) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') digits = to_upper(digits);
  } else if (type == '\0' && spec.precision < 0) {
    digits = float_repr(magnitude);
  } else {
    const char kind = type == '%' ? 'f' : type == '\0' || type == 'n' ? 'g' : type;
    digits = float_digits(spec, magnitude, kind, spec.precision < 0 ? 6 : spec.precision);
    // Without a type, a float keeps one digit after the point.
    if (type == '\0' && digits.find_first_of(".e") == std::string::npos) digits += ".0";
  }
  if (spec.group != '\0' && std::isfinite(number)) {
    const std::size_t end = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = group_digits(digits.substr(0, end), spec.group, 3) + digits.substr(end);
  }
  if (type == '%') digits += '%';
  return pad(spec, sign_of(spec, negative), digits, '>');
}

MarkedText format_text(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  if ((spec.type != '\0' && spec.type != 's') || spec.align == '=') {
    runtime.fail("a " + std::string(type_name(value)) +
                 " does not take this format specification.");
  }
  MarkedText text = to_text(runtime, value);
  if (spec.precision >= 0) {
    text = text.part(0, byte_offset(text.text(), static_cast<std::size_t>(spec.precision)));
  }
  return pad(spec, "", text, '<');
}

MarkedText format_value(Runtime& runtime, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(runtime, value);
  const FormatSpec spec = SpecParser(runtime, spec_text).parse();
  const auto is_type = [&](std::string_view types) {
    return types.find(spec.type) != std::string_view::npos;
  };
  if (value.is_integer() && spec.type == '\0' && value.is(Kind::kBool))
    return format_int(runtime, value, spec);
  if (value.is_integer() && (spec.type == '\0' || is_type("dxXobcn"))) {
    if (spec.precision >= 0) runtime.fail("an int takes no precision in a format.");
    return format_int(runtime, value, spec);
  }
  if (value.is_number() && (spec.type == '\0' || is_type("eEfFgGn%")))
    return format_float(value, spec);
  if (value.is_string()) return format_text(runtime, value, spec);
  if (value.is_undefined()) runtime.fail(value.undefined_reason() + ".");
  runtime.fail("a " + std::string(type_name(value)) + " does not take the format specification '" +
               std::string(spec_text.substr(0, byte_offset(spec_text, 50))) + "'.");
}

}  // namespace quire::chat_internal
