#pragma once
// What the decode attention kernels share: how the work is cut, and how parts become outputs.
//
// A unit of work is one item of the list (a sequence's chunk of kDecodeChunk tokens) for one slot:
// a KV head and up to head_tile rows of those that read it. The rows of a KV head are those of its
// query heads for the sequence's first query, then for the second, and so on, so that a tile of
// keys and values, once loaded, serves several queries. Blocks take units in the order of the list;
// nothing that is summed depends on which block takes which unit. A sequence of one chunk is
// written at once. Of a longer sequence every unit leaves its unnormalised output, maximum and sum
// in scratch, and the last to finish adds them up in the order of the chunks. Warps decide which is
// last, not blocks: warp w of a unit owns the same elements of the output in every chunk.
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda/attention/decode/sizes.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {

inline constexpr int kDecodeThreads = 32 * kDecodeWarps;
// Rows of a unit are at least this many, if there are so many.
inline constexpr int kMinDecodeHeadTile = 8;
// Counters at the start of the scratch, one for each sequence, slot and warp, and behind them that
// of the units. Their number is fixed, so that they stay in place, and zero, whatever the sizes of
// a call are.
inline constexpr int64_t kDecodeCounters = int64_t{1} << 20;
inline constexpr int64_t kUnitCounterWords = 32;  // the first counts: no partials in its line

// Scores are kept times log2(e), so that exponentials are powers of two.
struct DecodeParams {
  const void* q;
  int64_t q_stride;
  void* out;
  int num_heads;
  int num_kv_heads;
  int group;                   // query heads of a KV head
  int max_rows;                // of a KV head, where a sequence has the most queries
  int head_tile;               // rows of a unit, at most
  int head_tiles;              // of the rows of a KV head, where a sequence has the most queries
  int slots;                   // of an item: num_kv_heads * head_tiles
  float scale_log2;            // scale * log2(e)
  int sliding_window;          // 0: none
  const int32_t* query_start;  // null: a query of each sequence, in the row of its number
  const int32_t* block_tables;
  int64_t table_width;
  const DecodeItem* items;
  const int32_t* num_items;
  const void* keys;
  const void* values;
  const float* key_scales;    // [num_kv_heads] of float8, or null: all are 1
  const float* value_scales;  // the same
  int block_size;
  int head_dim;
  unsigned* counters;
  unsigned* units_taken;
  float2* maxima_sums;  // [max_decode_rows, num_heads * head_dim / 8]: of 8 elements each
  float* partials;      // [max_decode_rows, num_heads * head_dim]
};

// What a KV head's scores are multiplied by.
template <typename Kv>
__device__ __forceinline__ float score_scale(const DecodeParams& p, int kv_head) {
  if (!kIsFloat8<Kv> || p.key_scales == nullptr) return p.scale_log2;
  return p.scale_log2 * p.key_scales[kv_head];
}

// A unit, but for the blocks that hold its tokens.
struct DecodeUnit {
  int first_row;  // of the partials, where those of the sequence's chunks begin
  int slot;
  int seq;
  int chunk;
  int context_len;  // 0: there is no such unit
  int kv_head;
  int first_place;  // of the unit's rows among those of the KV head
  int num_rows;
  int first_query;  // of the sequence, in the rows of q and out
  int num_queries;  // of the sequence

  // Of any of the sequence's queries.
  __device__ int first_visible(int sliding_window) const {
    return sliding_window > 0 ? max(0, context_len - (num_queries - 1) - sliding_window) : 0;
  }
  // The end of what query `query` sees.
  __device__ int end_of(int query) const { return context_len - (num_queries - 1 - query); }
  // Whether any of its tokens is visible.
  __device__ bool is_visible(int sliding_window) const {
    return chunk * kDecodeChunk < context_len &&
           (chunk + 1) * kDecodeChunk > first_visible(sliding_window);
  }
};

// A block's first unit is that of its index. The further units go to the first block that has room:
// items are in descending order of size, so that blocks end together. Called by one thread of a
// block, once for each of its units that are below num_units; the counter is zero again after the
// last call.
__device__ inline int take_unit(unsigned* units_taken, int num_units) {
  const unsigned taken = atomicInc(units_taken, static_cast<unsigned>(num_units - 1));
  return static_cast<int>(gridDim.x + taken);
}

__device__ inline DecodeUnit make_unit(const DecodeParams& p, int index, const DecodeItem& item) {
  DecodeUnit unit;
  unit.first_row = item.first_row;
  unit.slot = index % p.slots;
  unit.seq = item.seq;
  unit.chunk = item.chunk;
  unit.context_len = item.context_len;
  unit.kv_head = unit.slot / p.head_tiles;
  unit.first_place = unit.slot % p.head_tiles * p.head_tile;
  unit.first_query = item.seq;
  unit.num_queries = 1;
  if (p.query_start != nullptr) {
    unit.first_query = p.query_start[item.seq];
    unit.num_queries = p.query_start[item.seq + 1] - unit.first_query;
  }
  unit.num_rows = min(p.head_tile, p.group * unit.num_queries - unit.first_place);
  if (unit.num_rows <= 0) unit.context_len = unit.num_rows = 0;
  return unit;
}

// A row of a unit: which of the sequence's queries it is of, and which query head's.
struct UnitRow {
  int query;
  int head;
};
// kMany: sequences may have several queries.
template <bool kMany>
__device__ inline UnitRow unit_row(const DecodeParams& p, const DecodeUnit& unit, int row) {
  const int place = unit.first_place + row;
  const int query = kMany ? place / p.group : 0;
  return {query, unit.kv_head * p.group + place - query * p.group};
}

// Four neighbouring elements of the output before the division by the sum.
struct DecodePartial {
  float4 value;
  float maximum;
  float sum;

  // Adds another part of the sequence. One of which a query sees nothing has the maximum -infinity.
  __device__ void add(float4 other, float2 maximum_sum) {
    const float highest = fmaxf(maximum, maximum_sum.x);
    if (highest == -INFINITY) return;
    const float factor = exp2f(maximum - highest);
    const float other_factor = exp2f(maximum_sum.x - highest);
    maximum = highest;
    sum = sum * factor + maximum_sum.y * other_factor;
    value.x = value.x * factor + other.x * other_factor;
    value.y = value.y * factor + other.y * other_factor;
    value.z = value.z * factor + other.z * other_factor;
    value.w = value.w * factor + other.w * other_factor;
  }
};

// Adds num_chunks chunks of four elements up, in order: those of rows first_row, first_row + step,
// and so on.
__device__ inline DecodePartial combine_chunks(const DecodeParams& p, int64_t first_row, int step,
                                               int num_chunks, int64_t element) {
  constexpr int kBatch = 8;  // loads in flight
  const int64_t width = int64_t{p.num_heads} * p.head_dim;
  const float* values = p.partials + first_row * width + element;
  const float2* maxima_sums = p.maxima_sums + (first_row * width + element) / 8;
  DecodePartial total = {{0.0f, 0.0f, 0.0f, 0.0f}, -INFINITY, 0.0f};
  for (int chunk = 0; chunk < num_chunks; chunk += kBatch) {
    float4 value[kBatch];
    float2 maximum_sum[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int64_t row = int64_t{min(chunk + i, num_chunks - 1)} * step;
      value[i] = __ldcg(reinterpret_cast<const float4*>(values + row * width));
      maximum_sum[i] = __ldcg(maxima_sums + row * (width / 8));
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (chunk + i < num_chunks) total.add(value[i], maximum_sum[i]);
    }
  }
  return total;
}

template <typename T>
__device__ void write_output(T* out, const DecodePartial& partial, float value_scale) {
  const float factor = value_scale / partial.sum;
  struct alignas(4 * sizeof(T)) Four {
    T at[4];
  };
  *reinterpret_cast<Four*>(out) = {
      from_float<T>(partial.value.x * factor), from_float<T>(partial.value.y * factor),
      from_float<T>(partial.value.z * factor), from_float<T>(partial.value.w * factor)};
}

// Whether this warp is the last of num_chunks to come here for a counter. What the others wrote
// before can then be read past the L1 cache. The counter goes back to zero.
__device__ inline bool is_last_warp(unsigned* counter, int num_chunks, int lane) {
  __syncwarp();
  bool is_last = false;
  if (lane == 0) {
    const auto last = static_cast<unsigned>(num_chunks - 1);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    is_last = atomicInc(counter, last) == last;
  }
  return __shfl_sync(0xffffffffu, is_last, 0);
}

// Chunks of the unit's sequence, from the first visible one on.
struct ChunkRange {
  int first;
  int count;
};
__device__ inline ChunkRange chunks_of(const DecodeParams& p, const DecodeUnit& unit) {
  const int first = unit.first_visible(p.sliding_window) / kDecodeChunk;
  return {first, (unit.context_len - 1) / kDecodeChunk - first + 1};
}

// Where four elements of a unit's output are: of `out`, and of a row of the partials.
struct OutputPlace {
  int query;
  int64_t element;  // of a row
};
template <bool kMany>
__device__ inline OutputPlace output_place(const DecodeParams& p, const DecodeUnit& unit, int e) {
  if constexpr (!kMany) {
    return {0, int64_t{unit.kv_head * p.group + unit.first_place} * p.head_dim + e};
  } else {
    const int row = e / p.head_dim;
    const UnitRow at = unit_row<true>(p, unit, row);
    return {at.query, int64_t{at.head} * p.head_dim + e - row * p.head_dim};
  }
}

// Makes outputs of a unit's elements: warp `warp` of num_warps, which is called as a whole, owns
// the same of them in every unit of a sequence. `partial_of(e)` is elements e to e + 3 of the
// unit's rows; `done()` is called after the last of these calls.
template <typename T, bool kMany, typename PartialOf, typename Done>
__device__ void finish_unit(const DecodeParams& p, const DecodeUnit& unit, int warp, int num_warps,
                            PartialOf&& partial_of, Done&& done) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_elements = unit.num_rows * p.head_dim;
  const int first = (warp * 32 + lane) * 4;
  const int stride = num_warps * 32 * 4;
  const int64_t width = int64_t{p.num_heads} * p.head_dim;
  T* const out = static_cast<T*>(p.out) + unit.first_query * width;
  const ChunkRange chunks = chunks_of(p, unit);
  const float value_scale = p.value_scales == nullptr ? 1.0f : p.value_scales[unit.kv_head];
  if (chunks.count == 1) {
    for (int e = first; e < num_elements; e += stride) {
      const OutputPlace at = output_place<kMany>(p, unit, e);
      write_output(out + at.query * width + at.element, partial_of(e), value_scale);
    }
    done();
    return;
  }

  for (int e = first; e < num_elements; e += stride) {
    const DecodePartial partial = partial_of(e);
    const OutputPlace at = output_place<kMany>(p, unit, e);
    const int row = unit.first_row + unit.chunk * unit.num_queries + at.query;
    const int64_t place = row * width + at.element;
    *reinterpret_cast<float4*>(p.partials + place) = partial.value;
    if (e % 8 == 0) p.maxima_sums[place / 8] = make_float2(partial.maximum, partial.sum);
  }
  done();
  if (warp * 32 * 4 >= num_elements) return;
  const int64_t counter = (int64_t{unit.seq} * p.slots + unit.slot) * kDecodeWarps + warp;
  if (!is_last_warp(p.counters + counter, chunks.count, lane)) return;
  const int64_t first_row = unit.first_row + int64_t{chunks.first} * unit.num_queries;
  for (int e = first; e < num_elements; e += stride) {
    const OutputPlace at = output_place<kMany>(p, unit, e);
    write_output(
        out + at.query * width + at.element,
        combine_chunks(p, first_row + at.query, unit.num_queries, chunks.count, at.element),
        value_scale);
  }
}

}  // namespace quire::ops::cuda
