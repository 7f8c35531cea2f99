#pragma once
// Puts rows of words side by side (WordRows in kernels.h), with the CPU's best instructions.
//
// Thread safety: free functions without state.
#include "ops/cpu/kernels.h"

namespace quire::ops {

// The first `num_rows` rows of an array, at most kPanelLanes, of whole words, to neighbouring
// steps. `rows_behind` more rows follow them; the kernel may fetch the first panel of these.
WordRows word_rows(const void* in, int64_t row_bytes, int64_t num_rows, int64_t words, void* out,
                   int64_t rows_behind = 0);

void interleave_words(const WordRows& rows);

}  // namespace quire::ops
