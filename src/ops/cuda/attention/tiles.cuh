#pragma once
// Which rows of which sequence a block of a prefill attention kernel computes.
//
// A grid has a bound of the tiles that any batch with these host-side sizes has, so a graph of it
// can be replayed with other lengths. Sequence s (counted from the first that is not a decode one),
// whose rows begin at a_s of all sequences' rows, has the tiles from floor(a_s / tile_rows) + s on:
// at least as many as its rows need, at most one more, and found with a search instead of a sum.
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/kernels.h"
#include "ops/cuda/math.cuh"

namespace quire::ops::cuda {

// Division by a number known on the host: exact for dividends up to 2^31 / divisor.
struct FastDivisor {
  uint32_t divisor;
  uint32_t magic;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t d) : divisor(d), magic((uint32_t{1} << 31) / d + 1) {}
  __device__ __forceinline__ uint32_t quotient(uint32_t x) const {
    return divisor == 1 ? x : static_cast<uint32_t>(static_cast<uint64_t>(x) * magic >> 31);
  }
};

// The batch as the tile search needs it.
struct TiledBatch {
  const int32_t* query_start;   // of the first sequence that is not a decode one
  const int32_t* context_lens;  // the same
  const int32_t* block_tables;  // the same
  int64_t table_width;
  int num_seqs;
  FastDivisor group;  // query heads of a KV head
};

// Needs num_decode_seqs < num_seqs.
inline TiledBatch tiled_batch(const CudaPagedAttention& args) {
  TiledBatch batch;
  batch.query_start = args.query_start + args.num_decode_seqs;
  batch.context_lens = args.context_lens + args.num_decode_seqs;
  batch.block_tables = args.block_tables + args.num_decode_seqs * args.table_width;
  batch.table_width = args.table_width;
  batch.num_seqs = static_cast<int>(args.num_seqs - args.num_decode_seqs);
  batch.group = FastDivisor(static_cast<uint32_t>(args.num_heads / args.cache.num_kv_heads));
  return batch;
}

// A bound of the tiles of one KV head.
inline int64_t max_tiles(const CudaPagedAttention& args, int tile_rows) {
  const int64_t group = args.num_heads / args.cache.num_kv_heads;
  const int64_t rows = (args.num_tokens - args.num_decode_seqs) * group;
  return rows / tile_rows + args.num_seqs - args.num_decode_seqs;
}

struct QueryTile {
  int64_t first_query;         // of the sequence, as a row of q and out
  const int32_t* block_table;  // of the sequence
  int rows;                    // of the sequence
  int first_row;               // of the tile; the tile is empty where it is not below `rows`
  int first_position;          // of the sequence's first query
  int context_len;

  // The position of a row's query.
  __device__ __forceinline__ int position(const FastDivisor& group, int row) const {
    return first_position + static_cast<int>(group.quotient(static_cast<uint32_t>(row)));
  }
};

// Tile `index` of a grid of max_tiles(). A sequence's tiles come last rows first: those have the
// most keys to read. All lanes of a warp take part.
template <int kTileRows>
__device__ __forceinline__ QueryTile find_tile(const TiledBatch& batch, int index) {
  const int group = static_cast<int>(batch.group.divisor);
  const int origin = batch.query_start[0];
  const auto first_tile = [&](int seq) {
    return (batch.query_start[seq] - origin) * group / kTileRows + seq;
  };
  // The last sequence that begins at or before the tile: of 32 candidates in each round.
  const int lane = static_cast<int>(threadIdx.x % 32);
  int seq = 0;
  int count = batch.num_seqs;
  while (count > 1) {
    const int step = (count + 31) / 32;
    const bool not_after = lane * step < count && first_tile(seq + lane * step) <= index;
    const int skipped = (__popc(__ballot_sync(~0u, not_after)) - 1) * step;
    seq += skipped;
    count = min(step, count - skipped);
  }
  const int begin = batch.query_start[seq];
  const int query_len = batch.query_start[seq + 1] - begin;
  QueryTile tile;
  tile.first_query = begin;
  tile.block_table = batch.block_tables + seq * batch.table_width;
  tile.context_len = batch.context_lens[seq];
  tile.rows = tile.context_len > 0 ? query_len * group : 0;
  tile.first_position = tile.context_len - query_len;
  const int tiles = (tile.rows + kTileRows - 1) / kTileRows;
  // Tiles beyond the sequence's own count are empty.
  const int nth = index - first_tile(seq);
  tile.first_row = nth < tiles ? (tiles - 1 - nth) * kTileRows : tile.rows;
  return tile;
}

// The first key that a query at `position` sees.
__device__ __forceinline__ int first_visible(int position, int64_t sliding_window) {
  if (sliding_window <= 0 || position < sliding_window) return 0;
  return position - static_cast<int>(sliding_window) + 1;
}

// What the parameters of the kernels that read such tiles have in common.
template <typename Params>
void set_queries(Params& params, const CudaPagedAttention& args) {
  params.batch = tiled_batch(args);
  params.q = args.q;
  params.q_stride = args.q_stride;
  params.out = args.out;
  params.num_heads = args.num_heads;
  params.scale_log2 = args.scale * kLog2E;
  params.sliding_window = args.sliding_window;
}

}  // namespace quire::ops::cuda
