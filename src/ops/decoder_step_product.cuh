#pragma once
// The matrix products of the decoder step's kernel: a block's share of weight rows, times up to 8
// rows of activations, by mma.m16n8k16 with the weights as the first operand, so that any number of
// rows costs what one does.
//
// Each slot's columns are split over the warps, 64 to a warp in two runs of 32, and each warp keeps
// its columns of the activations in registers; the 16 warps' sums meet in shared memory. So an
// element is always summed in the same order. In a run of 32 columns, lane (row g = lane / 4,
// t = lane % 4) holds columns 8 t to 8 t + 7 of both operands, a permutation of the columns that
// the products' operands share.
#include "ops/decoder_step_block.cuh"

namespace quire::ops::cuda::step {

inline constexpr int kRunColumns = 32;
inline constexpr int kRunsPerWarp = kSlotColumns / kRunColumns / kWarps;
static_assert(kRunsPerWarp == 2);

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

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

// sum += the tile's next column slot times x.
template <typename T>
__device__ __forceinline__ void add_tile(BlockState& block, bool has_second_group, int runs,
                                         const Columns& x, float (&sum)[4]) {
  const uint32_t offset = (block.lane / 4) * kSlotRowBytes + 16 * (block.lane % 4) +
                          block.warp * kRunsPerWarp * 2 * kRunColumns;
  uint4 first[kRunsPerWarp];
  uint4 second[kRunsPerWarp];
  const auto load = [&](uint4(&to)[kRunsPerWarp]) {
    block.ring.wait_full();
#pragma unroll
    for (int run = 0; run < kRunsPerWarp; ++run) {
      to[run] = run < runs ? load_shared(block.ring.data() + offset + run * 2 * kRunColumns)
                           : make_uint4(0, 0, 0, 0);
    }
    block.ring.release(block.lane);
  };
  load(first);
  if (has_second_group) {
    load(second);
  } else {
#pragma unroll
    for (int run = 0; run < kRunsPerWarp; ++run) second[run] = make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int run = 0; run < kRunsPerWarp; ++run) {
    const uint4 a = first[run];
    const uint4 b = second[run];
    Elements<T>::add_product(sum, a.x, b.x, a.y, b.y, x.at[run][0], x.at[run][1]);
    Elements<T>::add_product(sum, a.z, b.z, a.w, b.w, x.at[run][2], x.at[run][3]);
  }
}

// Partial sums: [tile][warp][row of activations][16 rows of weights], the last padded to 20 so that
// a warp's stores lie in different banks.
inline constexpr int kSumStride = 20;

__device__ __forceinline__ void store_sums(const BlockState& block, int tile,
                                           const float (&sum)[4]) {
  const int weight_row = block.lane / 4;
  const int row = 2 * (block.lane % 4);
  float* to = block.sums + ((tile * kWarps + block.warp) * block.rows + row) * kSumStride;
  if (row < block.rows) {
    to[weight_row] = sum[0];
    to[weight_row + 8] = sum[2];
  }
  if (row + 1 < block.rows) {
    to[kSumStride + weight_row] = sum[1];
    to[kSumStride + weight_row + 8] = sum[3];
  }
}

__device__ __forceinline__ float total_of(const BlockState& block, int tile, int row,
                                          int weight_row) {
  const float* from = block.sums + (tile * kWarps * block.rows + row) * kSumStride + weight_row;
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += from[warp * block.rows * kSumStride];
  return total;
}

// The factor of an RMS norm, of the squares that the warps have stored.
__device__ __forceinline__ float norm_factor(const BlockState& block, int row, int n, float eps) {
  float total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) total += block.squares[warp * kMaxRows + row];
  return rsqrtf(total / static_cast<float>(n) + eps);
}

// Stores this warp's sums of squares of x, for norm_factor() after the next barrier.
template <typename T, int kSlots>
__device__ __forceinline__ void store_squares(const BlockState& block, const Columns (&x)[kSlots]) {
  float total = 0;
#pragma unroll
  for (int i = 0; i < kSlots * kRunsPerWarp * 4; ++i) {
    const float2 pair = Elements<T>::unpack(x[i / 8].at[i / 4 % 2][i % 4]);
    total += pair.x * pair.x + pair.y * pair.y;
  }
  total += __shfl_xor_sync(0xffffffffu, total, 1);
  total += __shfl_xor_sync(0xffffffffu, total, 2);
  const int row = block.lane / 4;
  if (block.lane % 4 == 0) block.squares[block.warp * kMaxRows + row] = total;
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
  for (int i = 0; i < kSlots * kRunsPerWarp; ++i) {
    const int column = first_column(i / 2, i % 2, block.warp, block.lane);
    if (column >= n) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 bits = load_shared(block.ring.data() + 4 * (column + 4 * half));
      uint32_t(&pairs)[4] = x[i / 2].at[i % 2];
      const float2 a = Elements<T>::unpack(pairs[2 * half]);
      const float2 b = Elements<T>::unpack(pairs[2 * half + 1]);
      pairs[2 * half] = Elements<T>::pack(a.x * factor * __uint_as_float(bits.x),
                                          a.y * factor * __uint_as_float(bits.y));
      pairs[2 * half + 1] = Elements<T>::pack(b.x * factor * __uint_as_float(bits.z),
                                              b.y * factor * __uint_as_float(bits.w));
    }
  }
  block.ring.release(block.lane);
}

// Which of a batch of tiles' results a thread adds up: adjacent threads have adjacent features.
struct Result {
  int tile;
  int row;
  int feature;  // within the tile
};

__device__ __forceinline__ Result result_of(const BlockState& block, int features_per_tile) {
  const int rest = block.thread / features_per_tile;
  return {rest / block.rows, rest % block.rows, block.thread % features_per_tile};
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

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

// out = norm(x) * weight^T + bias for the block's share, or silu(first half) * second half of that
// where the share has halves.
template <typename T, int kSlots>
__device__ __forceinline__ void normed_product(BlockState& block, const Share& share,
                                               Columns (&x)[kSlots], const float* bias, float eps,
                                               Word* out, int out_width, uint32_t tag) {
  apply_norm<T>(block, share.k, eps, x);
  const int num_tiles = share.num_tiles();
  const int tiles_per_batch = kMaxSumTiles / block.rows;
  const bool gated = share.second_half > 0;
  for (int first = 0; first < num_tiles; first += tiles_per_batch) {
    const int batch = min(tiles_per_batch, num_tiles - first);
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
      const Result at = result_of(block, features);
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
template <typename T>
__device__ __forceinline__ void add_projection(BlockState& block, const Share& share,
                                               const Word* in, const float* bias, Word* out,
                                               int hidden, uint32_t tag, float& residual) {
  constexpr int kSlotsAtOnce = 3;
  const int num_tiles = share.num_tiles();
  if (num_tiles == 0) return;
  float sum[kMaxProjectionTiles][4] = {};
  for (int first = 0; first < share.num_column_slots(); first += kSlotsAtOnce) {
    Columns x[kSlotsAtOnce];
    read_columns(block, in, share.k, first, tag, x);
#pragma unroll
    for (int i = 0; i < kSlotsAtOnce; ++i) {
      if (first + i >= share.num_column_slots()) break;
      const int runs = runs_of(share.columns_of(first + i), block.warp);
#pragma unroll
      for (int tile = 0; tile < kMaxProjectionTiles; ++tile) {
        if (tile < num_tiles) {
          add_tile<T>(block, share.num_rows(tile, 1) > 0, runs, x[i], sum[tile]);
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kMaxProjectionTiles; ++tile) {
    if (tile < num_tiles) store_sums(block, tile, sum[tile]);
  }
  block.synchronize();
  if (32 * block.warp < num_tiles * share.rows_per_tile() * block.rows) {
    const Result at = result_of(block, share.rows_per_tile());
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
