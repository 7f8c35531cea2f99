#pragma once
// Shared by the parsers of answers.
#include <string_view>

namespace quire::parsers_internal {

// JSON's white space.
inline bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace quire::parsers_internal
