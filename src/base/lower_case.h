#pragma once
// Names that count in either case: of headers, schemes, architectures. Only ASCII's letters change,
// whatever the locale is.
//
// Thread safety: free functions.
#include <algorithm>
#include <string>
#include <string_view>

namespace quire {

constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = lower_case(c);
  return lower;
}

constexpr bool same_in_lower_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_case(x) == lower_case(y); });
}

}  // namespace quire
