#pragma once
// Checks for programmer errors: a condition that can only be false when quire itself is wrong.
// Anything that a file, a user or the machine can cause throws quire::Error instead.
#include <source_location>
#include <string_view>

namespace quire {

// Prints `what` with the place of the failure to stderr and aborts.
[[noreturn]] void check_failed(std::string_view what, const std::source_location& where);

inline void check(bool ok, std::string_view what,
                  const std::source_location& where = std::source_location::current()) {
  if (!ok) [[unlikely]]
    check_failed(what, where);
}

}  // namespace quire
