#pragma once
// How the attention of a layer is cut into pieces and dealt out to the blocks.
//
// A unit of work is a sequence's chunk of context for a KV head and the query heads that share it,
// so that the cache is read once. Chunks are cut at multiples of their size from position 0; the
// size is 128 tokens or, so that a sequence has at most kMaxChunks, the power of two that its
// context asks for. Where a sequence has one chunk, its unit publishes the result; else units
// publish partial results, and other pieces of work, a warp's each, of 32 elements of a head,
// combine them. Units are dealt out from the first block on, combinations from the last.
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda::step {

inline constexpr int kMaxRows = kMaxDecoderStepRows;
inline constexpr int kMaxGroup = 8;     // query heads that share a KV head
inline constexpr int kTileTokens = 64;  // of a slot of the ring
inline constexpr int kRowTokens = 8;    // of a slot's row; they lie side by side in the cache
inline constexpr int kMinChunkTokens = 128;
inline constexpr int kMaxChunks = 17;  // 16 chunks' length may touch 17
inline constexpr int kCombinedElements = 32;

// What of its context a sequence's query sees, cut into chunks.
struct ContextSpan {
  int begin;
  int end;
  int chunk_tokens;
  int first_chunk;
  int num_chunks;
};

// A piece of a layer's attention: a chunk of a sequence's context for a KV head.
struct AttentionUnit {
  int row;  // -1: there is no such unit
  int kv_head;
  int chunk;  // of the sequence's chunks that are seen, from 0
  int num_chunks;
  int begin;       // tokens [begin, end) are seen,
  int cached_end;  // [begin, cached_end) of them from the cache: the step's own token is not
  int end;
  // Where the step's own key and value are stored, in 16-byte words; -1: they are not.
  int64_t own_place;

  __device__ bool sees_own_token() const { return cached_end < end; }
};

__device__ __forceinline__ int first_tile(const AttentionUnit& unit) {
  return unit.begin / kTileTokens * kTileTokens;
}

// Another: joining the chunks' results for some elements of a head.
struct Combination {
  int row;  // -1: there is no such combination
  int head;
  int first_element;
  int num_chunks;
};

// A block's pieces of attention, the same in all layers with this sliding window.
struct UnitList {
  static constexpr int kMaxUnits = 56;

  AttentionUnit at[kMaxUnits];
};
struct WorkList {
  static constexpr int kMaxCombinations = 32;

  UnitList units;
  Combination combinations[kMaxCombinations];
};

// A padding row (context 0) sees only its own token, which never comes from the cache.
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

// The index-th unit of this block's.
__device__ __forceinline__ AttentionUnit find_unit(const CudaDecoderStep& args, int64_t window,
                                                   int index_of_block) {
  int index = static_cast<int>(blockIdx.x) + index_of_block * static_cast<int>(gridDim.x);
  AttentionUnit unit{};
  unit.row = -1;
  for (int row = 0; row < args.rows; ++row) {
    const ContextSpan span = span_of(args.context_lens[row], window);
    const int units = args.num_kv_heads * span.num_chunks;
    if (index >= units) {
      index -= units;
      continue;
    }
    unit.row = row;
    unit.chunk = index / args.num_kv_heads;
    unit.kv_head = index - unit.chunk * args.num_kv_heads;
    unit.num_chunks = span.num_chunks;
    const int chunk_begin = (span.first_chunk + unit.chunk) * span.chunk_tokens;
    unit.begin = max(chunk_begin, span.begin);
    unit.end = min(chunk_begin + span.chunk_tokens, span.end);
    unit.cached_end = min(unit.end, span.end - 1);
    unit.own_place = -1;
    const int64_t slot = args.slot_mapping[row];
    if (slot >= 0 && unit.sees_own_token()) {
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
  if (thread < UnitList::kMaxUnits) {
    work.units.at[thread] = find_unit(args, window, thread);
  } else if (thread < UnitList::kMaxUnits + WorkList::kMaxCombinations) {
    const int i = thread - UnitList::kMaxUnits;
    const int last = grid - 1 - static_cast<int>(blockIdx.x);
    work.combinations[i] = find_combination(args, window, last + i * grid);
  }
}

// Whether no block's lists overflow, whatever the contexts.
inline bool work_fits(const CudaDecoderStep& args, int64_t blocks) {
  const int64_t rows = kMaxRows;
  const int64_t units = rows * args.num_kv_heads * kMaxChunks;
  const int64_t combinations = rows * args.num_heads * args.head_dim / kCombinedElements;
  return units <= blocks * UnitList::kMaxUnits &&
         combinations <= blocks * WorkList::kMaxCombinations;
}

}  // namespace quire::ops::cuda::step
