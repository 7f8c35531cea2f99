#pragma once
// Elements as float32 and back, array by array: the loops that take most of a simulated model's
// time.
//
// Sanitizers do not look into them (CMakeLists.txt); who calls them tells them what is read and
// written, and checks the alignment. Thread safety: pure functions.
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "ops/group_tiles.h"

namespace quire::simulated {

// values[i] = from[i], for `count` elements of `dtype`: float32, bfloat16 or fp8.
void convert_to_floats(DType dtype, const void* from, int64_t count, float* values);
// The numbers of a row of integers, layout.k of them.
void convert_tile_row(const ops::GroupTiles& layout, int64_t row, const std::byte* tiles,
                      float* values);
// to[i] = values[i], rounded to nearest even; fp8 ends at its largest number.
void convert_from_floats(DType dtype, const float* values, int64_t count, void* to);

}  // namespace quire::simulated
