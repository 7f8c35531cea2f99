#pragma once
// Puts rows side by side: the step of packing a weight that handles every byte.
//
// Thread safety: a free function without state.
#include <cstddef>
#include <cstdint>

namespace quire::ops {

// Word w (4 bytes) of row r, at in + r * row_bytes, goes with the bits of `flip` inverted to word
// w * kPanelLanes + r of `out`, for `rows` rows, at most kPanelLanes, of `words` words. `in` and
// `out` may have any alignment.
void interleave_words(const std::byte* in, int64_t row_bytes, int64_t rows, int64_t words,
                      uint32_t flip, std::byte* out);

}  // namespace quire::ops
