#pragma once
// The rows that a block of an adapter's kernel works on.
//
// Items, slots and rows are written by copies that end before the kernels that read them may start,
// so they are read before wait_for_previous(), as matrices are.
#include <cstdint>

#include "ops/cuda/lora_kernels.h"

namespace quire::ops::cuda {

struct LoraBlock {
  LoraItem item;               // of slot -1 where there is no such item
  const CudaLoraLayer* layer;  // null where its rows have no adapter
};

__device__ __forceinline__ LoraBlock lora_block(const CudaLoraRows& rows,
                                                const CudaLoraLayer* layers, int64_t layer_stride,
                                                int index) {
  LoraBlock block = {{-1, 0, 0, 0}, nullptr};
  // Both are on their way at once.
  const int4 words = reinterpret_cast<const int4*>(rows.items)[index];
  if (index >= *rows.num_items) return block;
  block.item = {words.x, words.y, words.z, 0};
  if (block.item.slot >= 0) block.layer = layers + block.item.slot * layer_stride;
  return block;
}

// The matrices' row of the item's i-th row; -1 where it has fewer, or the row is not theirs.
__device__ __forceinline__ int local_row(const CudaLoraRows& rows, const LoraItem& item, int i) {
  if (i >= item.count) return -1;
  const auto row = static_cast<int>(rows.rows[item.first + i] - rows.first_row);
  return row >= 0 && row < rows.num_rows ? row : -1;
}

}  // namespace quire::ops::cuda
