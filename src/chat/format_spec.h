#pragma once
// Python's format specifications: numbers and texts as a format asks for them, e.g. ">10.2f".
#include <cstddef>
#include <string>

#include "chat/runtime.h"
#include "chat/value.h"

namespace quire::chat_internal {

// The widest field and the most digits that are written.
inline constexpr std::size_t kMaxWidth = 100'000;
inline constexpr int kMaxPrecision = 500;

// A parsed format specification, or a field of the % operator.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false;
  std::size_t width = 0;
  char group = '\0';  // , or _
  int precision = -1;
  char type = '\0';
};

// An integer, a number and any value's text, as `spec` says. Throw Error where `spec` does not fit
// the value; format_value() checks a number's type first.
MarkedText format_int(Runtime& runtime, const Value& value, const FormatSpec& spec);
MarkedText format_float(const Value& value, const FormatSpec& spec);
MarkedText format_text(Runtime& runtime, const Value& value, const FormatSpec& spec);

}  // namespace quire::chat_internal
