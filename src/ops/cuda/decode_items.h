#pragma once
// How the contexts of decode sequences are cut into the items of ops/cuda/kernels.h.
//
// Thread safety: pure functions.
#include <cstdint>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {

// Items that a context of that many tokens is cut into.
inline int64_t num_decode_items(int64_t context_len) {
  return ceil_div(context_len, kDecodeChunk);
}

// Writes the items of sequences 0, 1, ... of these context lengths, the larger first, so that the
// blocks of a kernel, which take one after the other, get about as much each. Whole chunks are in
// the sequences' order. Returns how many there are: the sum of num_decode_items().
// query_start: CudaPagedAttention's; null: each sequence has one query.
int64_t write_decode_items(std::span<const int32_t> context_lens, const int32_t* query_start,
                           DecodeItem* items);

// The same in memory of their own.
std::vector<DecodeItem> make_decode_items(std::span<const int32_t> context_lens,
                                          const int32_t* query_start = nullptr);

}  // namespace quire::ops
