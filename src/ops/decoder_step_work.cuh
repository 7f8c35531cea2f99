#pragma once
// How the attention of a layer is cut into pieces and dealt out to the blocks.
//
// A unit of work is a sequence's chunk of context for a query head: KV heads are read once for
// each, but from the L2 cache, and short contexts keep more blocks busy. Chunks are cut at
// multiples of their size from position 0; the size is 128 tokens or, so that a sequence has at
// most kMaxChunks, the power of two that its context asks for. Where a sequence has one chunk, its
// unit publishes the result; else units publish partial results, and other pieces of work, of 32
// elements of a head each, combine them. Units are dealt out from the first block on, combinations
// from the last.
#include "ops/cuda_kernels.h"

namespace quire::ops::cuda::step {

inline constexpr int kMaxRows = kMaxDecoderStepRows;
inline constexpr int kHeadsPerUnit = 1;
inline constexpr int kTileTokens = 64;
inline constexpr int kMinChunkTokens = 128;
inline constexpr int kMaxChunks = 17;  // 16 chunks' length may touch 17
inline constexpr int kCombinedElements = 32;
inline constexpr int kMaxPrefetchTokens = 512;

// What of its context a sequence's query sees, cut into chunks.
struct ContextSpan {
  int begin;
  int end;
  int chunk_tokens;
  int first_chunk;
  int num_chunks;
};

// A piece of a layer's attention: a chunk of a sequence's context for a query head.
struct AttentionUnit {
  int row;        // -1: there is no such unit
  bool is_first;  // of its block's list
  int kv_head;
  int first_head;
  int num_heads;
  int chunk;  // of the sequence's chunks that are seen, from 0
  int num_chunks;
  int chunk_begin;  // a multiple of the chunk's size
  int begin;        // tokens [begin, end) are seen,
  int cached_end;   // [begin, cached_end) of them from the cache: the step's own token is not
  int end;
  // Where the step's own key and value are stored, in 16-byte words; -1: this unit stores none.
  int64_t own_place;

  __device__ bool sees_own_token() const { return cached_end < end; }
};

// Another: joining the chunks' results for some elements of a head.
struct Combination {
  int row;  // -1: there is no such combination
  int head;
  int first_element;
  int num_chunks;
};

// A block's pieces of attention, the same in all layers with this sliding window.
struct WorkList {
  static constexpr int kMaxUnits = 72;
  static constexpr int kMaxCombinations = 32;

  // Block-table entries of the first unit, the only one for short contexts: a read of device memory
  // behind the weights that are on their way would hold it up.
  static constexpr int kMaxEntries = 64;

  AttentionUnit units[kMaxUnits];
  Combination combinations[kMaxCombinations];
  int32_t entries[kMaxEntries];
  int first_entry;
};

// A padding row (context 0) sees its own token alone, which never comes from the cache.
__device__ __forceinline__ ContextSpan span_of(int context_len, int64_t window) {
  ContextSpan span;
  span.end = max(context_len, 1);
  span.begin = window > 0 && window < span.end ? span.end - static_cast<int>(window) : 0;
  span.chunk_tokens = kMinChunkTokens;
  while (span.chunk_tokens * (kMaxChunks - 1) < span.end - span.begin) span.chunk_tokens *= 2;
  span.first_chunk = span.begin / span.chunk_tokens;
  span.num_chunks = (span.end - 1) / span.chunk_tokens + 1 - span.first_chunk;
  return span;
}

__device__ __forceinline__ int pairs_per_kv_head(const CudaDecoderStep& args) {
  const int group = args.num_heads / args.num_kv_heads;
  return (group + kHeadsPerUnit - 1) / kHeadsPerUnit;
}

// The index-th unit of all rows.
__device__ __forceinline__ AttentionUnit find_unit(const CudaDecoderStep& args, int64_t window,
                                                   int index_of_all) {
  int index = index_of_all;
  const int group = args.num_heads / args.num_kv_heads;
  const int pairs = args.num_kv_heads * pairs_per_kv_head(args);
  AttentionUnit unit{};
  unit.row = -1;
  for (int row = 0; row < args.rows; ++row) {
    const ContextSpan span = span_of(args.context_lens[row], window);
    const int units = pairs * span.num_chunks;
    if (index >= units) {
      index -= units;
      continue;
    }
    const int pair = index % pairs;
    const int first = pair % pairs_per_kv_head(args) * kHeadsPerUnit;
    unit.row = row;
    unit.is_first = index_of_all < static_cast<int>(gridDim.x);
    unit.kv_head = pair / pairs_per_kv_head(args);
    unit.first_head = unit.kv_head * group + first;
    unit.num_heads = min(kHeadsPerUnit, group - first);
    unit.chunk = index / pairs;
    unit.num_chunks = span.num_chunks;
    unit.chunk_begin = (span.first_chunk + unit.chunk) * span.chunk_tokens;
    unit.begin = max(unit.chunk_begin, span.begin);
    unit.end = min(unit.chunk_begin + span.chunk_tokens, span.end);
    unit.cached_end = min(unit.end, span.end - 1);
    unit.own_place = -1;
    const int64_t slot = args.slot_mapping[row];
    // Units of other query heads of this KV head have the same key and value.
    if (slot >= 0 && first == 0 && unit.sees_own_token()) {
      const int64_t block_size = args.cache.block_size;
      unit.own_place = ((slot / block_size * args.num_kv_heads + unit.kv_head) * block_size +
                        slot % block_size) *
                       (args.head_dim / 8);
    }
    break;
  }
  return unit;
}

__device__ __forceinline__ Combination find_combination(const CudaDecoderStep& args, int64_t window,
                                                        int index) {
  const int pieces = args.head_dim / kCombinedElements;
  for (int row = 0; row < args.rows; ++row) {
    const ContextSpan span = span_of(args.context_lens[row], window);
    if (span.num_chunks == 1) continue;
    if (index < args.num_heads * pieces) {
      return {row, index / pieces, index % pieces * kCombinedElements, span.num_chunks};
    }
    index -= args.num_heads * pieces;
  }
  return {-1, 0, 0, 0};
}

// Makes the block's lists for layers with this window.
__device__ __noinline__ inline void list_work(int thread, const CudaDecoderStep& args,
                                              int64_t window, WorkList& work) {
  const int grid = static_cast<int>(gridDim.x);
  const int at = static_cast<int>(blockIdx.x);
  if (thread < WorkList::kMaxUnits) {
    work.units[thread] = find_unit(args, window, at + thread * grid);
  } else if (thread < WorkList::kMaxUnits + WorkList::kMaxCombinations) {
    const int i = thread - WorkList::kMaxUnits;
    work.combinations[i] = find_combination(args, window, grid - 1 - at + i * grid);
  } else if (thread < WorkList::kMaxUnits + WorkList::kMaxCombinations + WorkList::kMaxEntries) {
    const int i = thread - WorkList::kMaxUnits - WorkList::kMaxCombinations;
    const AttentionUnit unit = find_unit(args, window, at);
    const int first = unit.row < 0 ? 0 : unit.chunk_begin / args.cache.block_size;
    if (i == 0) work.first_entry = first;
    const bool exists = unit.row >= 0 && (first + i) * args.cache.block_size < unit.end;
    work.entries[i] = exists ? args.block_tables[unit.row * args.table_width + first + i] : 0;
  }
}

// Whether no block's lists overflow, whatever the contexts.
inline bool work_fits(const CudaDecoderStep& args, int64_t blocks) {
  const int64_t rows = kMaxRows;
  const int64_t group = args.num_heads / args.num_kv_heads;
  const int64_t units =
      rows * args.num_kv_heads * ((group + kHeadsPerUnit - 1) / kHeadsPerUnit) * kMaxChunks;
  const int64_t combinations = rows * args.num_heads * args.head_dim / kCombinedElements;
  return units <= blocks * WorkList::kMaxUnits &&
         combinations <= blocks * WorkList::kMaxCombinations;
}

}  // namespace quire::ops::cuda::step
