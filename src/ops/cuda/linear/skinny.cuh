#pragma once
// What the blocks of a cluster have to do with each other in skinny_linear (skinny_cuda.cu) and
// float8_linear (float8_cuda.cu), and how their sums become outputs. Device code, only for sm_90a.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/linear/linear.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {

inline constexpr int kGroupThreads = 128;
inline constexpr int kProducerThreads = 32;
inline constexpr int kTileAlignment = 1024;
inline constexpr int kBytesOfDepth = kDepth * 2;
inline constexpr int kBarrierBytes = 16 + 16 * kMaxStages;

struct SkinnyArgs {
  const float* bias;
  void* out;
  int64_t out_stride;
  int rows;
  int n;
  int num_blocks;  // of kDepth
  int num_stages;
  int log2_splits;
  int cluster_rows;
  int cluster_columns;
  bool float_out;
  bool silu_and_mul;
  bool half_out;  // of kernels that take either type of 16 bits
};

constexpr int stage_bytes(int tile_columns, int tile_rows) {
  return (tile_columns + tile_rows) * kBytesOfDepth;
}

// Sums of a tile.
constexpr int sums_bytes(int tile_columns, int tile_rows) {
  return tile_columns * tile_rows * 4;
}

// Where this block is in its cluster: a part of k in each direction x, `rows` tiles of rows, which
// have their weights in common, and `columns` tiles of columns, which have their activations in
// common.
struct Place {
  int rows;
  int columns;

  __device__ int num_blocks() const { return static_cast<int>(gridDim.x) * rows * columns; }
  __device__ int row() const { return blockIdx.y & (rows - 1); }
  __device__ int column() const { return blockIdx.z & (columns - 1); }
  __device__ int rank(int part, int row, int column) const {
    return part + static_cast<int>(gridDim.x) * (row + rows * column);
  }
  // Of the blocks that have this one's weights, or activations.
  __device__ int rank_in_row(int row) const { return rank(blockIdx.x, row, column()); }
  __device__ int rank_in_column(int column) const { return rank(blockIdx.x, row(), column); }
  __device__ uint16_t weight_ranks() const {
    return static_cast<uint16_t>(1 << rank_in_row(0) | 1 << rank_in_row(rows - 1));
  }
  __device__ uint16_t in_ranks() const {
    return static_cast<uint16_t>(1 << rank_in_column(0) | 1 << rank_in_column(columns - 1));
  }
};

// How the parts of k add up their sums. A thread's sums come in quads, those of columns m and m + 8
// and rows r and r + 1 (see wgmma); four threads with neighbouring columns make a cell. Each block
// owns an equal share of the tile's cells and gets their quads from all blocks; it adds the parts
// up in order. In memory: sums[part][unit of cells][warp][cell][quad].
template <int kTileColumns, int kTileRows>
struct Exchange {
  static constexpr int kWarps = kTileColumns / 16;
  // Of a warp: 8 for each 8 rows.
  static constexpr int kLog2Cells = std::countr_zero(static_cast<unsigned>(kTileRows));
  static constexpr int kQuadBytes = 16;
  static constexpr int kCellQuads = 4;
  static constexpr bool kFewSums = kTileRows <= 16;

  uint32_t sums;
  uint32_t barrier;
  int log2_splits;
  int first_rank;  // of the block with the first part of k

  // Shifts, for a division takes as long as a cell.
  __device__ int log2_cells() const { return kLog2Cells - log2_splits; }
  __device__ int cells_of_block() const { return 1 << log2_cells(); }
  __device__ int quads_of_block() const { return (kWarps * kCellQuads) << log2_cells(); }
  __device__ int slot(int own_cell, int warp, int quad) const {
    const int log2_unit = min(3, log2_cells());
    const int in_unit = own_cell & ((1 << log2_unit) - 1);
    return ((((own_cell >> log2_unit) * kWarps + warp) << log2_unit) + in_unit) * kCellQuads + quad;
  }
  __device__ bool is_alone() const { return log2_splits == 0; }
  __device__ bool counts_bytes() const { return kFewSums && !is_alone(); }

  // By one thread, before the cluster's first barrier.
  __device__ void expect() const {
    barrier_init(barrier, counts_bytes() ? 1 : kWarps * gridDim.x);
    if (counts_bytes()) barrier_arrive_expecting(barrier, sums_bytes(kTileColumns, kTileRows));
  }
  // The quad of rows [8 * octet, 8 * octet + 8) that this thread has.
  __device__ void send(int octet, const float (&quad)[4]) const {
    const int lane = threadIdx.x % 32;
    const int cell = octet * 8 + lane / 16 * 4 + lane % 4;
    const int owner = cell >> log2_cells();
    const int to = blockIdx.x * quads_of_block() +
                   slot(cell & (cells_of_block() - 1), threadIdx.x / 32, lane / 4 % kCellQuads);
    const uint32_t address = sums + to * kQuadBytes;
    if (is_alone()) {
      store_floats(address, quad);
      return;
    }
    const auto rank = static_cast<uint32_t>(first_rank + owner);
    if (counts_bytes()) {
      store_in_cluster(address_in_cluster(address, rank), quad, address_in_cluster(barrier, rank));
    } else {
      store_in_cluster(address_in_cluster(address, rank), quad);
    }
  }
  // After a warp's last send().
  __device__ void finish_sending() const {
    if (counts_bytes()) return;
    __syncwarp();
    const auto lane = threadIdx.x % 32;
    if (lane < gridDim.x) {
      barrier_release_in_cluster(address_in_cluster(barrier, first_rank + lane));
    }
  }
  // Of all parts of k, added up in order.
  __device__ void sum(int slot, float (&quad)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) quad[i] = 0;
    const uint32_t step = quads_of_block() * kQuadBytes;
    uint32_t address = sums + slot * kQuadBytes;
    for (int split = 0; split < static_cast<int>(gridDim.x); ++split) {
      float part[4];
      load_floats(address, part);
#pragma unroll
      for (int i = 0; i < 4; ++i) quad[i] += part[i];
      address += step;
    }
  }
};

// Adds the bias of columns `column` and column + 8.
__device__ __forceinline__ void add_bias(const SkinnyArgs& args, int column, float (&quad)[4]) {
  if (args.bias == nullptr) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int c = column + 8 * half;
    const float bias = c < args.n ? args.bias[c] : 0.0f;
    quad[2 * half] += bias;
    quad[2 * half + 1] += bias;
  }
}

// Transposes the 4 x 4 matrix that four neighbouring threads have a row each of.
__device__ __forceinline__ void transpose(float (&row)[4]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance <= 2; distance *= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & distance) != 0) continue;
      const float got = __shfl_xor_sync(0xffffffffu, upper ? row[i] : row[i + distance], distance);
      if (upper) {
        row[i] = got;
      } else {
        row[i + distance] = got;
      }
    }
  }
}

// Outputs [column, column + 4) of a row that has `columns`.
template <typename T>
__device__ __forceinline__ void store_outputs(T* row, int column, int columns,
                                              const float (&values)[4]) {
  struct alignas(4 * sizeof(T)) Vector {
    T elements[4];
  };
  Vector vector;
#pragma unroll
  for (int i = 0; i < 4; ++i) vector.elements[i] = static_cast<T>(values[i]);
  if (column + 4 <= columns) {
    *reinterpret_cast<Vector*>(row + column) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < columns) row[column + i] = vector.elements[i];
  }
}

// The same in the type that `args` name; T is void where it is known only then.
template <typename T>
__device__ __forceinline__ void store_row(const SkinnyArgs& args, int row, int column, int columns,
                                          const float (&values)[4]) {
  const int64_t offset = row * args.out_stride;
  if (args.float_out) {
    store_outputs(static_cast<float*>(args.out) + offset, column, columns, values);
  } else if constexpr (!std::is_void_v<T>) {
    store_outputs(static_cast<T*>(args.out) + offset, column, columns, values);
  } else if (args.half_out) {
    store_outputs(static_cast<__half*>(args.out) + offset, column, columns, values);
  } else {
    store_outputs(static_cast<__nv_bfloat16*>(args.out) + offset, column, columns, values);
  }
}

// What sums are multiplied by: nothing.
struct Unscaled {
  __device__ void apply(int, int, float (&)[4]) const {}
};

// This block's share of the tile's outputs. With silu_and_mul the upper half of the warps had what
// the outputs of the lower half are multiplied by. scales.apply(column, row, quad) is told columns
// `column` and column + 8 and rows `row` and row + 1 of the tile.
template <typename T, bool kSilu, int kTileColumns, int kTileRows, typename Scales = Unscaled>
__device__ void finish_tile(const SkinnyArgs& args,
                            const Exchange<kTileColumns, kTileRows>& exchange,
                            const Scales& scales = {}) {
  constexpr int kThreads = kTileColumns / kGroupColumns * kGroupThreads;
  constexpr int kOutputs = kSilu ? kTileColumns / 2 : kTileColumns;
  constexpr int kOutputWarps = kOutputs / 16;
  constexpr int kCellQuads = Exchange<kTileColumns, kTileRows>::kCellQuads;
  const int columns = kSilu ? args.n / 2 : args.n;
  const int first_row = blockIdx.y * kTileRows;
  const int first_column = blockIdx.z * kOutputs;
  const int num_quads = exchange.cells_of_block() * kOutputWarps * kCellQuads;
  for (int first = 0; first < num_quads; first += kThreads) {
    const int i = first + threadIdx.x;
    const int in_cell = i % kCellQuads;
    // Neighbours have neighbouring columns: those of a cell, of the one 4 on, and of the next warp.
    const int log2_pair = exchange.log2_cells() >= 3 ? 1 : 0;
    const int group = i / kCellQuads;
    const int second = group & log2_pair;
    const int warp = (group >> log2_pair) % kOutputWarps;
    const int rest = (group >> log2_pair) / kOutputWarps;
    const int own_cell = (rest / 4 * 4 << log2_pair) + second * 4 + rest % 4;
    const int cell = blockIdx.x * exchange.cells_of_block() + own_cell;
    const int tile_row = cell / 8 * 8 + 2 * (cell % 4);
    const int tile_column = warp * 16 + cell / 4 % 2 * 4;
    const int row = first_row + tile_row + in_cell % 2;
    const int column = first_column + tile_column;
    float values[4] = {};
    if (i < num_quads) {
      exchange.sum(exchange.slot(own_cell, warp, in_cell), values);
      scales.apply(tile_column + in_cell, tile_row, values);
      add_bias(args, column + in_cell, values);
      if constexpr (kSilu) {
        float up[4];
        exchange.sum(exchange.slot(own_cell, warp + kOutputWarps, in_cell), up);
        scales.apply(kOutputs + tile_column + in_cell, tile_row, up);
        add_bias(args, columns + column + in_cell, up);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] = silu(values[j]) * up[j];
      }
    }
    transpose(values);
    if (i >= num_quads || row >= args.rows) continue;
    // Of a cell's threads the upper two have the columns from 8 on.
    const int out_column = column + in_cell / 2 * 8;
    store_row<T>(args, row, out_column, columns, values);
  }
}

}  // namespace quire::ops::cuda
