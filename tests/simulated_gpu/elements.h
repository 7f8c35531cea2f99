#pragma once
// Elements of device memory as float32: what the kernels compute in.
//
// Thread safety: pure functions of their arguments.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "ops/group_tiles.h"

namespace quire::simulated {

// Throws Error for what the simulated GPU does not compute in; its KV cache may also be in fp8.
void check_dtype(std::string_view kernel, DType dtype);

// Elements from `first` on of an array of `dtype`, as many as `values` has.
void read(DType dtype, const void* array, int64_t first, std::span<float> values);
// Elements [first, first + count).
std::vector<float> read(DType dtype, const void* array, int64_t first, int64_t count);
// The same of a weight, which is large and written at once: the thread sanitizer is shown a part of
// it.
void read_weights(DType dtype, const void* array, int64_t first, std::span<float> values);
// Row `row` of a weight of integers: values[i] is its number for input i.
void read_tile_row(const ops::GroupTiles& layout, int64_t row, const void* tiles,
                   std::span<float> values);
// Rounds to nearest even; fp8 ends at its largest number.
void write(DType dtype, void* array, int64_t first, std::span<const float> values);

}  // namespace quire::simulated
