#pragma once
// Chooses among kernels that are compiled once for each number of rows, whose sums then stay in
// registers.
//
// Thread safety: a free function.
#include <type_traits>

#include "ops/cpu/kernels.h"

namespace quire::ops {

static_assert(kTileRows == 6);

// kernel(rows as a constant), of 1 to kTileRows rows.
template <typename Kernel>
[[gnu::always_inline]] inline void with_fixed_rows(int rows, const Kernel& kernel) {
  switch (rows) {
    case 1:
      return kernel(std::integral_constant<int, 1>());
    case 2:
      return kernel(std::integral_constant<int, 2>());
    case 3:
      return kernel(std::integral_constant<int, 3>());
    case 4:
      return kernel(std::integral_constant<int, 4>());
    case 5:
      return kernel(std::integral_constant<int, 5>());
    default:
      return kernel(std::integral_constant<int, 6>());
  }
}

}  // namespace quire::ops
