#pragma once
// Checks for programmer errors: a condition that can only be false when quire itself is wrong.
// Anything that a file, a user or the machine can cause throws quire::Error instead.
#include <string_view>

namespace quire {

// The caller's place in the code, as a default argument. (std::source_location needs clang 15.)
struct CodePlace {
  const char* file;
  int line;
  const char* function;

  static constexpr CodePlace current(const char* file = __builtin_FILE(),
                                     int line = __builtin_LINE(),
                                     const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
};

// Prints `what` with the place of the failure to stderr and aborts.
[[noreturn]] void check_failed(std::string_view what, const CodePlace& where);

inline void check(bool ok, std::string_view what, const CodePlace& where = CodePlace::current()) {
  if (!ok) [[unlikely]]
    check_failed(what, where);
}

}  // namespace quire
