#pragma once
// The matrix products of the decoder step's kernel: a block's share of weight rows, times up to 8
// rows of activations, by mma.m16n8k16 with the weights as the first operand, so that any number of
// rows costs what one does.
//
// Each slot's columns are split over the warps, 128 to a warp in four runs of 32, and each warp
// keeps its columns of the activations in registers; the warps' sums meet in shared memory. So an
// element is always summed in the same order. In a run of 32 columns, lane (row g = lane / 4,
// t = lane % 4) holds columns 8 t to 8 t + 7 of both operands, a permutation of the columns that
// the products' operands share.
#include "ops/decoder_step_block.cuh"
#include "ops/math.cuh"
#include "ops/mma.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kRunColumns = 32;
inline constexpr int kRunsPerWarp = kSlotColumns / kRunColumns / kWarps;

inline constexpr int kMaxRowsReadAtOnce = 2;

// 8 columns of each of a warp's runs, two 16-bit elements in each.
struct Columns {
  uint32_t at[kRunsPerWarp][4];
};

// Of the runs of a column slot, how many are this warp's.
__device__ __forceinline__ int runs_of(int columns, int warp) {
  return min(kRunsPerWarp, max(0, columns / kRunColumns - kRunsPerWarp * warp));
}
__device__ __forceinline__ int first_column(int column_slot, int run, int warp, int lane) {
  return column_slot * kSlotColumns + (kRunsPerWarp * warp + run) * kRunColumns + 8 * (lane % 4);
}

// Waits for kSlots column slots of the exchanged rows [rows, width] from `first` on. Slots and runs
// that a row of this width hasn't are zeros.
template <int kSlots>
__device__ __forceinline__ void read_columns(const BlockState& block, const Word* exchange,
                                             int width, int first, uint32_t tag,
                                             Columns (&out)[kSlots]) {
  constexpr int kRuns = kSlots * kRunsPerWarp;
  const int row = block.lane / 4;
  const int begin = first_column(first, 0, block.warp, block.lane);
  const Word* words = exchange + (static_cast<int64_t>(row) * width + begin) / 2;
  const auto offset = [](int run) {  // in columns
    return run / kRunsPerWarp * kSlotColumns + run % kRunsPerWarp * kRunColumns;
  };
  const int end = row < block.rows ? width - begin : 0;
  Word at[kRuns][4];
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (Word& word : at[run]) word = make_word(0, tag);
  }
  // Many rows are many words: while most are still on their way, ask for one of a lane's.
  if (block.rows > kMaxRowsReadAtOnce) {
    while (__any_sync(0xffffffffu, end > 0 && tag_of(load_word(words)) != tag)) continue;
  }
  bool complete;
  do {
    complete = true;
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      if (offset(run) < end) {
        load_two_words(words + offset(run) / 2, at[run][0], at[run][1]);
        load_two_words(words + offset(run) / 2 + 2, at[run][2], at[run][3]);
      }
    }
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
#pragma unroll
      for (const Word word : at[run]) complete = complete && tag_of(word) == tag;
    }
  } while (__any_sync(0xffffffffu, !complete));
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[run / kRunsPerWarp].at[run % kRunsPerWarp][i] = payload_of(at[run][i]);
    }
  }
}

// This warp's part of the next slot: 8 rows of its first `runs` runs.
__device__ __forceinline__ void take_group(BlockState& block, int runs, uint4 (&to)[kRunsPerWarp]) {
  block.ring.wait_full();
  const uint32_t from = block.ring.data() + block.tile_offset;
#pragma unroll
  for (int run = 0; run < kRunsPerWarp; ++run) {
    to[run] = run < runs ? load_chunk(from + run * 2 * kRunColumns) : make_uint4(0, 0, 0, 0);
  }
  block.ring.release(block.lane);
}

// sum += the tile's next column slot times x.
template <typename T>
__device__ __forceinline__ void add_tile(BlockState& block, bool has_second_group, int runs,
                                         const Columns& x, float (&sum)[4]) {
  uint4 first[kRunsPerWarp];
  uint4 second[kRunsPerWarp] = {};
  take_group(block, runs, first);
  if (has_second_group) take_group(block, runs, second);
  float other[4] = {};  // a second chain of products
#pragma unroll
  for (int run = 0; run < kRunsPerWarp; ++run) {
    const uint4 a = first[run];
    const uint4 b = second[run];
    Elements<T>::add_product(sum, a.x, b.x, a.y, b.y, x.at[run][0], x.at[run][1]);
    Elements<T>::add_product(other, a.z, b.z, a.w, b.w, x.at[run][2], x.at[run][3]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += other[i];
}

// Partial sums: [tile][warp][row of activations][kSumStride].
__device__ __forceinline__ void store_sums(const BlockState& block, int tile,
                                           const float (&sum)[4]) {
  const int weight_row = block.lane / 4;
  const int row = 2 * (block.lane % 4);
  float* to = block.sums() + ((tile * kWarps + block.warp) * block.rows + row) * kSumStride;
  if (row < block.rows) {
    to[weight_row] = sum[0];
    to[weight_row + 8] = sum[2];
  }
  if (row + 1 < block.rows) {
    to[kSumStride + weight_row] = sum[1];
    to[kSumStride + weight_row + 8] = sum[3];
  }
}

// In four chains.
__device__ __forceinline__ float sum_of(const float (&of_warp)[kWarps]) {
  float chains[4] = {of_warp[0], of_warp[1], of_warp[2], of_warp[3]};
#pragma unroll
  for (int warp = 4; warp < kWarps; ++warp) chains[warp % 4] += of_warp[warp];
  return (chains[0] + chains[1]) + (chains[2] + chains[3]);
}

__device__ __forceinline__ float total_of(const BlockState& block, int tile, int row,
                                          int weight_row) {
  const float* from = block.sums() + (tile * kWarps * block.rows + row) * kSumStride + weight_row;
  float of_warp[kWarps];
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) of_warp[warp] = from[warp * block.rows * kSumStride];
  return sum_of(of_warp);
}

// The factor of an RMS norm, of the squares that the warps have stored.
__device__ __forceinline__ float norm_factor(const BlockState& block, int row, int n, float eps) {
  float of_warp[kWarps];
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) of_warp[warp] = block.squares()[warp * kMaxRows + row];
  return rsqrtf(sum_of(of_warp) / static_cast<float>(n) + eps);
}

// Stores this warp's sums of squares of x, for norm_factor() after the next barrier: the diagonal
// of x times itself.
template <typename T, int kSlots>
__device__ __forceinline__ void store_squares(const BlockState& block, const Columns (&x)[kSlots]) {
  float sum[2 * kRunsPerWarp][4] = {};  // chains of products of their own
#pragma unroll
  for (const Columns& columns : x) {
#pragma unroll
    for (int run = 0; run < kRunsPerWarp; ++run) {
      const uint32_t(&at)[4] = columns.at[run];
      Elements<T>::add_product(sum[2 * run], at[0], 0, at[1], 0, at[0], at[1]);
      Elements<T>::add_product(sum[2 * run + 1], at[2], 0, at[3], 0, at[2], at[3]);
    }
  }
#pragma unroll
  for (int i = 1; i < 2 * kRunsPerWarp; ++i) {
    sum[0][0] += sum[i][0];
    sum[0][1] += sum[i][1];
  }
  const int row = block.lane / 4;
  if (block.lane % 4 == row / 2) {
    block.squares()[block.warp * kMaxRows + row] = row % 2 == 0 ? sum[0][0] : sum[0][1];
  }
}

// x times the norm's weights, which are in the next slot of the ring. Where kScalesFirst, times its
// factor too; else the factor is left to the product's result.
template <typename T, int kSlots>
__device__ __forceinline__ void apply_norm(BlockState& block, int n, float eps,
                                           Columns (&x)[kSlots]) {
  store_squares<T>(block, x);
  float factor = 1;
  if constexpr (Elements<T>::kScalesFirst) {
    block.synchronize();
    factor = norm_factor(block, block.lane / 4, n, eps);
  }
  block.ring.wait_full();
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) {
    uint4 weights[kRunsPerWarp][2];  // all on their way before the first is used
#pragma unroll
    for (int run = 0; run < kRunsPerWarp; ++run) {
      const int column = first_column(slot, run, block.warp, block.lane);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        weights[run][half] = column < n ? load_chunk(block.ring.data() + 4 * (column + 4 * half))
                                        : make_uint4(0, 0, 0, 0);
      }
    }
#pragma unroll
    for (int run = 0; run < kRunsPerWarp; ++run) {
      uint32_t(&pairs)[4] = x[slot].at[run];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 bits = weights[run][half];
        const float2 a = Elements<T>::unpack(pairs[2 * half]);
        const float2 b = Elements<T>::unpack(pairs[2 * half + 1]);
        pairs[2 * half] = Elements<T>::pack(a.x * factor * __uint_as_float(bits.x),
                                            a.y * factor * __uint_as_float(bits.y));
        pairs[2 * half + 1] = Elements<T>::pack(b.x * factor * __uint_as_float(bits.z),
                                                b.y * factor * __uint_as_float(bits.w));
      }
    }
  }
  block.ring.release(block.lane);
}

// Publishes `value`, and the next lane's beside it, by lanes of even features.
template <typename T>
__device__ __forceinline__ void publish_pair(Word* exchange, int width, int row, int feature,
                                             float value, bool valid, uint32_t tag) {
  const float next = __shfl_down_sync(0xffffffffu, value, 1);
  if (valid && feature % 2 == 0) {
    publish(exchange + (static_cast<int64_t>(row) * width + feature) / 2,
            Elements<T>::pack(value, next), tag);
  }
}

// out = norm(x) * weight^T + bias for the block's share, or silu(first half) * second half of that
// where the share has halves.
template <typename T, int kSlots>
__device__ __forceinline__ void normed_product(BlockState& block, const Share& share,
                                               Columns (&x)[kSlots], const float* bias, float eps,
                                               Word* out, int out_width, uint32_t tag) {
  apply_norm<T>(block, share.k, eps, x);
  const int num_tiles = share.num_tiles();
  const bool gated = share.second_half > 0;
#pragma unroll 1
  for (int first = 0; first < num_tiles; first += block.tiles_per_batch) {
    const int batch = min(block.tiles_per_batch, num_tiles - first);
#pragma unroll 1
    for (int tile = 0; tile < batch; ++tile) {
      float sum[4] = {};
      const bool has_second_group = share.num_rows(first + tile, 1) > 0;
#pragma unroll
      for (int at = 0; at < kSlots; ++at) {
        if (at >= share.num_column_slots()) break;
        add_tile<T>(block, has_second_group, runs_of(share.columns_of(at), block.warp), x[at], sum);
      }
      store_sums(block, tile, sum);
    }
    block.synchronize();
    const int features = share.rows_per_tile();
    if (32 * block.warp < batch * features * block.rows) {
      const Result at = gated ? Result(block.of_group) : Result(block.of_tile);
      const int feature = share.begin + (first + at.tile) * features + at.feature;
      const bool valid = at.tile < batch && feature < share.end;
      float value = 0;
      if (valid) {
        const float factor =
            Elements<T>::kScalesFirst ? 1.0f : norm_factor(block, at.row, share.k, eps);
        value = factor * total_of(block, at.tile, at.row, at.feature);
        if (bias != nullptr) value += bias[feature];
        if (gated) {
          float up = factor * total_of(block, at.tile, at.row, at.feature + kGroupRows);
          if (bias != nullptr) up += bias[feature + share.second_half];
          value = silu(value) * up;
        }
      }
      publish_pair<T>(out, out_width, at.row, feature, value, valid, tag);
    }
    block.synchronize();
  }
}

// residual += in * weight^T + bias, where each thread holds one element of the block's share of the
// residual; publishes it.
template <typename T, int kTiles>
__device__ __forceinline__ void add_projection(BlockState& block, const Share& share,
                                               const Word* in, const float* bias, Word* out,
                                               int hidden, uint32_t tag, float& residual) {
  constexpr int kSlotsAtOnce = 3;
  const int num_tiles = share.num_tiles();
  if (num_tiles == 0) return;
  float sum[kTiles][4] = {};
#pragma unroll 1
  for (int first = 0; first < share.num_column_slots(); first += kSlotsAtOnce) {
    Columns x[kSlotsAtOnce];
    read_columns(block, in, share.k, first, tag, x);
#pragma unroll
    for (int i = 0; i < kSlotsAtOnce; ++i) {
      if (first + i >= share.num_column_slots()) break;
      const int runs = runs_of(share.columns_of(first + i), block.warp);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (tile < num_tiles) {
          add_tile<T>(block, share.num_rows(tile, 1) > 0, runs, x[i], sum[tile]);
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile < num_tiles) store_sums(block, tile, sum[tile]);
  }
  block.synchronize();
  if (32 * block.warp < num_tiles * share.rows_per_tile() * block.rows) {
    const Result at = block.of_tile;
    const int feature = share.begin + at.tile * share.rows_per_tile() + at.feature;
    const bool valid = at.tile < num_tiles && feature < share.end;
    if (valid) {
      residual += total_of(block, at.tile, at.row, at.feature);
      if (bias != nullptr) residual += bias[feature];
    }
    publish_pair<T>(out, hidden, at.row, feature, residual, valid, tag);
  }
  block.synchronize();
}

}  // namespace quire::ops::cuda::step
