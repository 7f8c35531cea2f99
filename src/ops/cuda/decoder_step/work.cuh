#pragma once
// How the attention of a layer is cut into pieces and dealt out to the blocks.
//
// A unit of work is a sequence's chunk of context for a KV head and the query heads that share it,
// so that the cache is read once. Where a sequence has several rows, a unit takes as many of them
// as there are places for their query heads; what a row does not see of the chunk is masked. Chunks
// are cut at multiples of their size from position 0; the size is 128 tokens or, so that a sequence
// has at most kMaxChunks, the power of two that its context asks for. Where a sequence has one
// chunk, its unit publishes the result; else units publish partial results, and other pieces of
// work, a warp's each, of 32 elements of a head, combine them. Units are dealt out from the first
// block on, combinations from the last.
#include "ops/cuda/decoder_step_kernels.h"

namespace quire::ops::cuda::step {

inline constexpr int kMaxRows = kMaxDecoderStepRows;
inline constexpr int kMaxGroup = 8;     // query heads that share a KV head
inline constexpr int kTileTokens = 64;  // of a slot of the ring
inline constexpr int kRowTokens = 8;    // of a slot's row; they lie side by side in the cache
inline constexpr int kMinChunkTokens = 128;
inline constexpr int kMaxChunks = 17;  // 16 chunks' length may touch 17
inline constexpr int kCombinedElements = 32;

// Rows of one sequence, as many as a unit takes.
struct RowGroup {
  int row;  // the first
  int num_rows;
  int seq;
  int cached;  // tokens of the sequence before this step's
  int end;     // tokens that the last row sees, itself included
};

// A step's rows, group by group. A padding row sees only its own token.
class RowGroups {
 public:
  __device__ explicit RowGroups(const CudaDecoderStep& args)
      : rows_at_once_(kMaxGroup / (args.num_heads / args.num_kv_heads)) {}

  // False: there are no more.
  __device__ __forceinline__ bool next(const CudaDecoderStep& args, RowGroup& group) {
    if (row_ >= args.rows) return false;
    if (args.query_start == nullptr) {
      const int end = max(args.context_lens[row_], 1);
      group = {row_, 1, row_, end - 1, end};
    } else {
      while (seq_ < args.num_seqs && args.query_start[seq_ + 1] <= row_) ++seq_;
      if (seq_ == args.num_seqs) {
        group = {row_, 1, 0, 0, 1};
      } else {
        const int begin = args.query_start[seq_];
        const int end = args.query_start[seq_ + 1];
        const int num_rows = min(rows_at_once_, end - row_);
        const int cached = args.context_lens[seq_] - (end - begin);
        group = {row_, num_rows, seq_, cached, cached + row_ + num_rows - begin};
      }
    }
    row_ += group.num_rows;
    return true;
  }

 private:
  int rows_at_once_;
  int row_ = 0;
  int seq_ = 0;
};

// What of their context a group's rows see, cut into chunks.
struct ContextSpan {
  int begin;
  int end;
  int chunk_tokens;
  int first_chunk;
  int num_chunks;
};

// A piece of a layer's attention: a chunk of a sequence's context for a KV head and some rows.
struct AttentionUnit {
  int row;  // the first; -1: there is no such unit
  int num_rows;
  int seq;
  int kv_head;
  int chunk;  // of the group's chunks that are seen, from 0
  int num_chunks;
  int begin;       // tokens [begin, end) are seen,
  int cached_end;  // [begin, cached_end) of them from the cache: the step's own tokens are not
  int end;
  int group_end;  // tokens that the last row sees

  __device__ int num_own_tokens() const { return end - cached_end; }
  // Of a token of the step.
  __device__ int row_of(int token) const { return row + num_rows - (group_end - token); }
  // The tokens that one of its rows sees end here.
  __device__ int end_of(int row_of_unit) const { return group_end - (num_rows - 1 - row_of_unit); }
};

__device__ __forceinline__ int first_tile(const AttentionUnit& unit) {
  return unit.begin / kTileTokens * kTileTokens;
}

// What the attention of a row knows of it, in any layer.
struct RowPlace {
  int position;
  // Where its key and value of KV head 0 are stored, in 16-byte words; -1: they are not.
  int64_t stored;
};

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
  RowPlace rows[kMaxRows];
};

// The first of `end` tokens that a row sees.
__device__ __forceinline__ int begin_of(int end, int64_t window) {
  return window > 0 && window < end ? end - static_cast<int>(window) : 0;
}

__device__ __forceinline__ ContextSpan span_of(const RowGroup& group, int64_t window) {
  ContextSpan span;
  span.end = group.end;
  span.begin = begin_of(group.end - group.num_rows + 1, window);
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
  RowGroups groups(args);
  RowGroup group;
  while (groups.next(args, group)) {
    const ContextSpan span = span_of(group, window);
    const int units = args.num_kv_heads * span.num_chunks;
    if (index >= units) {
      index -= units;
      continue;
    }
    unit.row = group.row;
    unit.num_rows = group.num_rows;
    unit.seq = group.seq;
    unit.chunk = index / args.num_kv_heads;
    unit.kv_head = index - unit.chunk * args.num_kv_heads;
    unit.num_chunks = span.num_chunks;
    const int chunk_begin = (span.first_chunk + unit.chunk) * span.chunk_tokens;
    unit.begin = max(chunk_begin, span.begin);
    unit.end = min(chunk_begin + span.chunk_tokens, span.end);
    unit.cached_end = max(unit.begin, min(unit.end, group.cached));
    unit.group_end = group.end;
    break;
  }
  return unit;
}

__device__ __forceinline__ Combination find_combination(const CudaDecoderStep& args, int64_t window,
                                                        int index) {
  const int pieces = args.head_dim / kCombinedElements;
  const int of_row = args.num_heads * pieces;
  RowGroups groups(args);
  RowGroup group;
  while (groups.next(args, group)) {
    const ContextSpan span = span_of(group, window);
    if (span.num_chunks == 1) continue;
    if (index < group.num_rows * of_row) {
      const int row = index / of_row;
      index -= row * of_row;
      return {group.row + row, index / pieces, index % pieces * kCombinedElements, span.num_chunks};
    }
    index -= group.num_rows * of_row;
  }
  return {-1, 0, 0, 0};
}

__device__ __forceinline__ RowPlace find_row(const CudaDecoderStep& args, int row) {
  if (row >= args.rows) return {0, -1};
  RowPlace place{args.positions[row], -1};
  const int64_t slot = args.slot_mapping[row];
  if (slot >= 0) {
    const int64_t block_size = args.cache.block_size;
    place.stored = (slot / block_size * args.num_kv_heads * block_size + slot % block_size) *
                   (args.head_dim / 8);
  }
  return place;
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
  } else if (thread < UnitList::kMaxUnits + WorkList::kMaxCombinations + kMaxRows) {
    const int row = thread - UnitList::kMaxUnits - WorkList::kMaxCombinations;
    work.rows[row] = find_row(args, row);
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
