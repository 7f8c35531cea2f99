#pragma once
// What an activation takes from the arena: for the plan of memory, which mirrors each layer's
// forward().
#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "core/dtype.h"

namespace quire {

// [rows, columns] of `dtype`.
constexpr size_t activation_bytes(int64_t rows, int64_t columns, DType dtype) {
  return align_up(static_cast<size_t>(rows) * static_cast<size_t>(columns) * size_of(dtype));
}

}  // namespace quire
