#pragma once
// Rounds the rows of a dense weight to integers in groups.
//
// A group's scale is chosen by measured error: of a few that map the value of the largest magnitude
// to the end of the integers' range or clip it, the one whose integers come closest to the values,
// and then the scale at which these integers have the least squared error. Integers are symmetric:
// there are no offsets. Thread safety: a free function without state.
#include "core/tensor.h"
#include "ops/cpu/group_panels.h"

namespace quire::ops {

// Packs `source` [rows, k], float32, bfloat16 or float16, as rows from first_row on. A group with
// an infinity or a NaN has the scale NaN.
void quantise_rows(const GroupLayout& layout, int64_t first_row, const Tensor& source,
                   std::byte* panels);

}  // namespace quire::ops
