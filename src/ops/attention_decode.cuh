#pragma once
// What the decode attention kernels share: how the work is cut, and how parts become outputs.
//
// A unit of work is one item of the list (a sequence's chunk of kDecodeChunk tokens) for one slot:
// a KV head and up to kHeadTile of the query heads that share it. Blocks take units at a stride of
// the grid; nothing that is summed depends on which block takes which unit. A sequence of one chunk
// is written at once. Of the others every unit leaves its unnormalised output, maximum and sum in
// scratch, and whoever comes last adds them up in the order of the chunks. That is agreed on by
// warps, not by blocks: warp w of a unit owns the same elements of the output in every chunk.
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda_kernels.h"
#include "ops/elements.cuh"

namespace quire::ops::cuda {

inline constexpr int kDecodeWarps = 8;
inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
// Query heads of a unit are at least this many, if the group has them.
inline constexpr int kMinDecodeHeadTile = 8;
// Counters at the start of the scratch, one for each sequence, slot and warp. Their number is
// fixed, so that they stay in place, and zero, whatever the sizes of a call are.
inline constexpr int64_t kDecodeCounters = int64_t{1} << 18;

// Scores are kept times log2(e), so that exponentials are powers of two.
struct DecodeParams {
  const void* q;
  int64_t q_stride;
  void* out;
  int num_heads;
  int num_kv_heads;
  int group;           // query heads of a KV head
  int head_tile;       // query heads of a unit, at most
  int slots;           // of an item: num_kv_heads * ceil(group / head_tile)
  float scale_log2;    // scale * log2(e)
  int sliding_window;  // 0: none
  const int32_t* context_lens;
  const int32_t* block_tables;
  int64_t table_width;
  const int2* items;
  const int32_t* num_items;
  const void* keys;
  const void* values;
  int block_size;
  int head_dim;
  unsigned* counters;
  float2* maxima_sums;  // [max_decode_items, num_heads * head_dim / 8]: of 8 elements each
  float* partials;      // [max_decode_items, num_heads * head_dim]
};

// A unit, but for the blocks that hold its tokens.
struct DecodeUnit {
  int item;
  int slot;
  int seq;
  int chunk;
  int context_len;  // 0: there is no such unit

  __device__ int first_visible(int sliding_window) const {
    return sliding_window > 0 ? max(0, context_len - sliding_window) : 0;
  }
  // Whether any of its tokens is visible.
  __device__ bool is_visible(int sliding_window) const {
    return chunk * kDecodeChunk < context_len &&
           (chunk + 1) * kDecodeChunk > first_visible(sliding_window);
  }
  __device__ int kv_head(const DecodeParams& p) const { return slot / (p.slots / p.num_kv_heads); }
  __device__ int first_of_group(const DecodeParams& p) const {
    return slot % (p.slots / p.num_kv_heads) * p.head_tile;
  }
  __device__ int first_head(const DecodeParams& p) const {
    return kv_head(p) * p.group + first_of_group(p);
  }
  __device__ int num_heads(const DecodeParams& p) const {
    return min(p.head_tile, p.group - first_of_group(p));
  }
};

// An element of the output before the division by the sum.
struct DecodePartial {
  float value;
  float maximum;
  float sum;
};

// Adds the chunks [0, num_chunks) of one element up, in order.
__device__ inline DecodePartial combine_chunks(const DecodeParams& p, int64_t first_item,
                                               int num_chunks, int64_t element) {
  constexpr int kBatch = 8;  // loads in flight
  const int64_t width = int64_t{p.num_heads} * p.head_dim;
  const float* values = p.partials + first_item * width + element;
  const float2* maxima_sums = p.maxima_sums + (first_item * width + element) / 8;
  DecodePartial total = {0.0f, -INFINITY, 0.0f};
  for (int chunk = 0; chunk < num_chunks; chunk += kBatch) {
    float value[kBatch];
    float2 maximum_sum[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t row = min(chunk + i, num_chunks - 1);
      value[i] = __ldcg(values + row * width);
      maximum_sum[i] = __ldcg(maxima_sums + row * (width / 8));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (chunk + i >= num_chunks) break;
      const float maximum = fmaxf(total.maximum, maximum_sum[i].x);
      const float old_factor = exp2f(total.maximum - maximum);
      const float factor = exp2f(maximum_sum[i].x - maximum);
      total.maximum = maximum;
      total.value = total.value * old_factor + value[i] * factor;
      total.sum = total.sum * old_factor + maximum_sum[i].y * factor;
    }
  }
  return total;
}

// Makes outputs of a unit's elements; `partial_of(e)` is element e of the unit's heads, which the
// calling thread owns if e % kDecodeThreads is its index. Called by whole warps.
template <typename T, typename PartialOf>
__device__ void finish_unit(const DecodeParams& p, const DecodeUnit& unit, PartialOf&& partial_of) {
  const int thread = static_cast<int>(threadIdx.x);
  const int num_elements = unit.num_heads(p) * p.head_dim;
  const int warp = thread / 32;
  if (warp * 32 >= num_elements) return;
  const int64_t width = int64_t{p.num_heads} * p.head_dim;
  const int64_t first_element = int64_t{unit.first_head(p)} * p.head_dim;
  T* out = static_cast<T*>(p.out) + unit.seq * width + first_element;
  const int first_chunk = unit.first_visible(p.sliding_window) / kDecodeChunk;
  const int num_chunks = (unit.context_len - 1) / kDecodeChunk - first_chunk + 1;
  if (num_chunks == 1) {
    for (int e = thread; e < num_elements; e += kDecodeThreads) {
      const DecodePartial partial = partial_of(e);
      out[e] = from_float<T>(partial.value / partial.sum);
    }
    return;
  }

  for (int e = thread; e < num_elements; e += kDecodeThreads) {
    const DecodePartial partial = partial_of(e);
    const int64_t place = unit.item * width + first_element + e;
    p.partials[place] = partial.value;
    if (e % 8 == 0) p.maxima_sums[place / 8] = make_float2(partial.maximum, partial.sum);
  }
  __syncwarp();
  bool is_last = false;
  if (thread % 32 == 0) {
    __threadfence();
    const int64_t counter = (int64_t{unit.seq} * p.slots + unit.slot) * kDecodeWarps + warp;
    // Wraps to zero at the last, for the next kernel.
    const auto last = static_cast<unsigned>(num_chunks - 1);
    is_last = atomicInc(p.counters + counter, last) == last;
    __threadfence();
  }
  if (!__shfl_sync(0xffffffffu, is_last, 0)) return;
  const int64_t first_item = unit.item - (unit.chunk - first_chunk);
  for (int e = thread; e < num_elements; e += kDecodeThreads) {
    const DecodePartial total = combine_chunks(p, first_item, num_chunks, first_element + e);
    out[e] = from_float<T>(total.value / total.sum);
  }
}

}  // namespace quire::ops::cuda
