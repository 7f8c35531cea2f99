#pragma once
// Rounds the rows of a dense weight to integers in groups, or to float8.
//
// int8 is symmetric: its range ends at the group's largest magnitude, and there are no offsets.
// int4 has scales and offsets, chosen by measured error: its range is that of the group's values,
// or ends half a step before the lowest, the highest or both; each of the four gives integers, and
// these the scale and offset of the least squared error; the best of the four is taken. Integers
// are rounded with the stored scale and offset. float8 has a scale for each row, its largest
// magnitude / 448. Thread safety: free functions without state.
#include <functional>

#include "core/tensor.h"
#include "ops/cpu/group_panels.h"

namespace quire::ops {

// Rounds `source` [rows, k], float32, bfloat16 or float16, to int8 without offsets, or int4 with
// them, in groups of inputs. Calls `take` with a few rows at a time and the number of the first. A
// group with a value that is not finite, or whose square is not, has the scale NaN.
void quantise_rows(const GroupLayout& layout, const Tensor& source,
                   const std::function<void(int64_t first_row, const GroupedRows& rows)>& take);

// Rounds the same source to numbers [rows, k] and scales [rows]. A row of zeros, or of numbers too
// small for their scale to be a float32, becomes zeros with the scale 1; a row with a value that is
// not finite has the scale NaN.
void round_rows_to_float8(const Tensor& source, Float8E4M3* numbers, float* scales);

}  // namespace quire::ops
