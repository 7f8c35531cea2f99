#pragma once
// The pieces of the Hopper prefill attention kernel (hopper_kernel.cuh): what a tile is
// and in which order tiles are taken, the online softmax on a warpgroup's accumulators, and the
// store of a tile's result.
//
// A warpgroup's accumulator of m64nNk16 is laid out as follows: warp w has rows [16 w, 16 w + 16).
// In it, lane l holds rows l / 4 ("half" 0) and l / 4 + 8 (half 1), and of every 8 columns those at
// 2 (l % 4) and one more: element 4 j + 2 half + e is column 8 j + 2 (l % 4) + e.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/convert.cuh"

namespace quire::ops::cuda::hopper {

struct AttentionSizes {
  const int32_t* query_start;
  const int32_t* context_lens;
  const int32_t* block_tables;
  int64_t table_width;
  int first_seq;
  int num_seqs;
  int num_heads;
  int num_kv_heads;
  int block_size;
  int tile_queries;
  int tile_heads;      // heads of a tile: they share their keys
  int box_rows;        // tokens that one copy takes: a divisor of block_size
  int sliding_window;  // greater than any position where there is none
  float scale_log2;    // the scale of scores, times log2(e)
  void* out;
  int* next_tile;  // 0 before and after
};

// Queries [q_row, q_row + rows) of the batch; of each, sizes.tile_heads heads from `head` on.
struct AttentionTile {
  int rows;  // 0: there are no more tiles
  int q_row;
  int first_position;  // of q_row in its sequence
  int context_len;
  int seq;
  int head;
  int first_block;  // blocks of keys that some query of the tile sees
  int end_block;
};

// Numbers the tiles: sequences in order, of each the last queries first since they see the most
// keys, and a tile's heads side by side since they share keys. All lanes of a warp look together,
// for numbers that only grow.
template <int kKeys>
class TileOrder {
 public:
  __device__ explicit TileOrder(const AttentionSizes& sizes)
      : sizes_(sizes), heads_(sizes.num_heads / sizes.tile_heads) {
    load();
  }

  __device__ AttentionTile find(int number) {
    int total = __shfl_sync(~0u, end_, 31);
    while (number >= before_ + total) {
      before_ += total;
      first_seq_ += 32;
      if (first_seq_ >= sizes_.num_seqs) return {};
      load();
      total = __shfl_sync(~0u, end_, 31);
    }
    const int local = number - before_;
    const int lane = __ffs(static_cast<int>(__ballot_sync(~0u, end_ > local))) - 1;
    const int tiles = __shfl_sync(~0u, tiles_, lane);
    const int row = __shfl_sync(~0u, row_, lane);
    const int queries = __shfl_sync(~0u, queries_, lane);
    const int rank = local - (__shfl_sync(~0u, end_, lane) - tiles * heads_);
    const int first = (tiles - 1 - rank / heads_) * sizes_.tile_queries;
    AttentionTile tile;
    tile.rows = min(sizes_.tile_queries, queries - first);
    tile.q_row = row + first;
    tile.seq = first_seq_ + lane;
    tile.context_len = __shfl_sync(~0u, context_len_, lane);
    tile.first_position = tile.context_len - queries + first;
    tile.head = rank % heads_ * sizes_.tile_heads;
    tile.first_block = max(0, tile.first_position - sizes_.sliding_window + 1) / kKeys;
    tile.end_block = (tile.first_position + tile.rows - 1) / kKeys + 1;
    return tile;
  }

  // All tiles; known once find() has found none.
  __device__ int count() const { return before_; }

 private:
  __device__ void load() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int seq = first_seq_ + lane;
    tiles_ = 0;
    if (seq < sizes_.num_seqs) {
      row_ = sizes_.query_start[seq];
      queries_ = sizes_.query_start[seq + 1] - row_;
      context_len_ = sizes_.context_lens[seq];
      if (context_len_ > 0) {
        tiles_ = (queries_ + sizes_.tile_queries - 1) / sizes_.tile_queries;
      }
    }
    end_ = tiles_ * heads_;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end_, step);
      if (lane >= step) end_ += other;
    }
  }

  const AttentionSizes& sizes_;
  int heads_;  // tiles side by side
  int first_seq_ = sizes_.first_seq;
  int before_ = 0;  // tiles of the sequences before first_seq_
  // Of sequence first_seq_ + lane; end_: the tiles up to and with it.
  int row_ = 0;
  int queries_ = 0;
  int context_len_ = 0;
  int tiles_ = 0;
  int end_ = 0;
};

// Makes the scores of keys [first_key, first_key + kKeys) that come after the row's own position,
// or with kFirst `window` or more before it, -inf; this lane's rows are at `position` and position
// + 8.
template <int kKeys, bool kFirst>
__device__ __forceinline__ void mask_scores(float (&scores)[kKeys / 2], int first_key, int position,
                                            int window) {
  const int first_column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int bound = position + 8 * half - first_column - (kFirst ? window : 0);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * j + e;
        float& score = scores[4 * j + 2 * half + e];
        score = (kFirst ? column <= bound : column > bound) ? -INFINITY : score;
      }
    }
  }
}

// Softmax of a warpgroup's rows over blocks of keys that come one after another.
struct OnlineSoftmax {
  float max[2];
  float sum[2];  // this lane's columns only

  __device__ void reset() {
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }

  // Scores become exp2(scale_log2 * (score - max)); correction[half] is what was summed before has
  // to be multiplied with, the maximum having grown.
  template <int kCount>
  __device__ __forceinline__ void add(float (&scores)[kCount], float scale_log2,
                                      float (&correction)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = max[half];
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j) {
        highest = fmaxf(highest, fmaxf(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1]));
      }
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      // A row that has seen no key yet stays at zeros.
      const float base = highest == -INFINITY ? 0.0f : highest * scale_log2;
      correction[half] = fast_exp2(max[half] * scale_log2 - base);
      max[half] = highest;
      float total = sum[half] * correction[half];
#pragma unroll
      for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[4 * j + 2 * half + e];
          score = fast_exp2(fmaf(score, scale_log2, -base));
          total += score;
        }
      }
      sum[half] = total;
    }
  }

  // 1 / the sum over all columns.
  __device__ __forceinline__ float inverse_sum(int half) const {
    float total = sum[half];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    return 1.0f / total;
  }
};

// Word j of lane t of every four lanes becomes word t of lane j.
__device__ __forceinline__ void transpose_quad(uint32_t (&words)[4]) {
  const bool upper = (threadIdx.x & 2) != 0;
  const bool odd = (threadIdx.x & 1) != 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(~0u, upper ? words[i] : words[i + 2], 2);
    words[i] = upper ? other : words[i];
    words[i + 2] = upper ? words[i + 2] : other;
  }
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? words[i] : words[i + 1], 1);
    words[i] = odd ? other : words[i];
    words[i + 1] = odd ? words[i + 1] : other;
  }
}

// Writes this lane's rows of the accumulator, each times its factor: `out` is row 0's of the
// warpgroup, rows `stride` elements apart; of the warpgroup's rows the first `rows` are written.
template <typename T, int kCount>
__device__ __forceinline__ void store_rows(const float (&accumulator)[kCount],
                                           const float (&factor)[2], T* out, int64_t stride,
                                           int rows) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int first_row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + 8 * half;
    T* row_out = out + row * stride + thread % 4 * 8;
#pragma unroll
    for (int group = 0; group < kCount / 16; ++group) {  // 32 columns
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* pair = &accumulator[16 * group + 4 * j + 2 * half];
        words[j] = pair_of<T>(pair[0] * factor[half], pair[1] * factor[half]);
      }
      transpose_quad(words);
      if (row < rows) {
        *reinterpret_cast<uint4*>(row_out + 32 * group) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

}  // namespace quire::ops::cuda::hopper
