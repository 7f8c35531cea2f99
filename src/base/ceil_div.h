#pragma once
// Integers divided or rounded upwards: the number of blocks that hold a number of tokens, say.
//
// Thread safety: pure functions, for host and device code.
#include <concepts>
#include <type_traits>

namespace quire {

// a / b, rounded up. a >= 0, b > 0, and a + b does not overflow.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// The least multiple of `multiple` that is at least `value`.
template <std::integral A, std::integral B>
constexpr std::common_type_t<A, B> round_up(A value, B multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace quire
