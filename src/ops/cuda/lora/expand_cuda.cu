// What adapters add to a layer's outputs.
#include <algorithm>
#include <type_traits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/branch.cuh"
#include "ops/cuda/lora/rows.cuh"
#include "ops/cuda/lora/tile.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {
namespace {

// Outputs of a block at a time.
constexpr int kTiles = 4;
constexpr int kBlockOutputs = kTiles * kTileOutputs;
// Of a large step, blocks for each multiprocessor.
constexpr int64_t kBlocksEach = 12;

// Outputs of part `part` (the gate's, of gate and up) from `first` on.
struct PartTile {
  int part;
  int first;
};

__device__ __forceinline__ PartTile part_tile(const CudaLoraExpand& args, int tile) {
  PartTile result = {0, tile};
  if (!args.silu_and_mul) {
    for (; result.part + 1 < args.num_parts; ++result.part) {
      const auto tiles =
          static_cast<int>((args.num_outputs[result.part] + kBlockOutputs - 1) / kBlockOutputs);
      if (result.first < tiles) break;
      result.first -= tiles;
    }
  }
  result.first *= kBlockOutputs;
  return result;
}

// What a slot adds to some outputs: of one part, or with kGated of gate and up. T is the matrices'
// type and Out that of the outputs.
template <typename T, bool kGated>
struct Sides {
  static constexpr int kCount = kGated ? 2 : 1;
  int ranks[kCount];
  int first_rank[kCount];
  const T* matrix[kCount];
  OutputChange change[kCount];
  int most_ranks = 0;

  // `output` is the lane's first.
  __device__ Sides(const CudaLoraExpand& args, const CudaLoraLayer* layer, int part, int output) {
#pragma unroll
    for (int side = 0; side < kCount; ++side) {
      ranks[side] = layer == nullptr ? 0 : layer->rank[part + side];
      first_rank[side] = ranks[side] == 0 ? 0 : layer->first_rank[part + side];
      matrix[side] = ranks[side] == 0 ? nullptr : static_cast<const T*>(layer->b[part + side]);
      change[side] = output_change(args, layer, part + side, output);
      most_ranks = max(most_ranks, ranks[side]);
    }
  }
  __device__ bool keeps_outputs() const {
    return !kGated && ranks[0] == 0 && change[0].added == nullptr;
  }
};

// The lane's outputs of two rows (-1: none): what the base's product made of them, and what they
// become.
template <typename Out, bool kGated>
struct Outputs {
  static constexpr int kSides = kGated ? 2 : 1;
  Pack<Out> base[2][kSides];

  __device__ void load(const CudaLoraExpand& args, const int (&rows)[2], int part, int output) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] < 0) continue;
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
        const auto* from =
            kGated ? static_cast<const Out*>(args.gate_up) + rows[half] * args.gate_up_stride
                   : static_cast<const Out*>(args.out) + rows[half] * args.out_stride;
        base[half][side] = load_pack(from + args.first_output[part + side] + output);
      }
    }
  }
  __device__ void store(const CudaLoraExpand& args, const int (&rows)[2], int part, int output,
                        const TileSums (&sums)[kSides],
                        const OutputChange (&change)[kSides]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] < 0) continue;
      Out* const out = static_cast<Out*>(args.out) + rows[half] * args.out_stride + output;
      if constexpr (kGated) {
        store_pack(out, gate_sums<Out>(base[half][0], base[half][1], sums, half, change));
      } else {
        store_pack(out + args.first_output[part],
                   add_sums<Out>(base[half][0], sums[0], half, change[0]));
      }
    }
  }
};

// The lane's rows of 16 of an item, from `first` on; -1 where it has none of the outputs.
__device__ __forceinline__ void lane_rows(int (&rows)[2], const CudaLoraRows& all,
                                          const LoraItem& item, int first, bool is_inside) {
  const int octet = threadIdx.x % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows[half] = is_inside ? local_row(all, item, first + 8 * half + octet) : -1;
  }
}

// For small ranks: a tile of outputs a warp, 16 rows of an item at a time. B's first kSteps *
// kLoraRankStep ranks are on their way to registers before the kernels before have ended. Grid:
// items; tiles of outputs, of which a block takes each gridDim.y-th.
template <typename T, typename Out, bool kGated, int kSteps>
__global__ __launch_bounds__(32 * kTiles, kSteps == 1 ? 6 : 4) void expand_few_ranks(
    const __grid_constant__ CudaLoraExpand args, int num_tiles) {
  constexpr int kSides = kGated ? 2 : 1;
  constexpr int kRanks = kSteps * kLoraRankStep;
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  if (block.item.count == 0 || (!kGated && block.layer == nullptr)) return wait_for_previous();
  bool waits = true;
  for (int index = blockIdx.y; index < num_tiles; index += static_cast<int>(gridDim.y)) {
    const PartTile at = part_tile(args, index);
    const int first_output = at.first + static_cast<int>(threadIdx.x) / 32 * kTileOutputs;
    const int output = first_output + 8 * static_cast<int>(threadIdx.x % 4);
    const auto num_outputs = static_cast<int>(args.num_outputs[at.part]);
    const Sides<T, kGated> sides(args, block.layer, at.part, output);
    TileWeights b[kSides][kSteps];
    const auto load_b = [&](int rank) {
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          b[side][step] = load_weights<T>(sides.matrix[side], sides.ranks[side], num_outputs,
                                          first_output, rank + step * kLoraRankStep);
        }
      }
    };
    load_b(0);
    if (waits) wait_for_previous();
    waits = false;
    if (sides.keeps_outputs()) continue;
    for (int first = 0; first < block.item.count; first += 16) {
      int rows[2];
      lane_rows(rows, args.rows, block.item, first, true);
      Outputs<Out, kGated> outputs;
      int stored[2];
      lane_rows(stored, args.rows, block.item, first, output < num_outputs);
      outputs.load(args, stored, at.part, output);
      TileSums sums[kSides] = {};
      for (int rank = 0; rank < sides.most_ranks; rank += kRanks) {
        if (sides.most_ranks > kRanks && (first > 0 || rank > 0)) load_b(rank);
        TileRows t[kSides][kSteps];
#pragma unroll
        for (int side = 0; side < kSides; ++side) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            t[side][step] = load_rows<T>(args.t, args.max_ranks, rows, sides.first_rank[side],
                                         rank + step * kLoraRankStep, sides.ranks[side]);
          }
        }
#pragma unroll
        for (int side = 0; side < kSides; ++side) {
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
            multiply_tile<T>(sums[side], t[side][step], b[side][step]);
          }
        }
      }
      outputs.store(args, stored, at.part, output, sums, sides.change);
    }
  }
  if (waits) wait_for_previous();
}

constexpr int kStagedThreads = 2 * 32 * kTiles;
constexpr int kStageRanks = 64;

// Of the outputs of a block and an item's rows, B and t for kStageRanks ranks in shared memory.
// Rows are a pack longer, against bank conflicts.
template <typename T>
struct Stage {
  static constexpr int kPacks = kStageRanks / kPackSize;
  static constexpr int kStride = kStageRanks + kPackSize;

  T b[kBlockOutputs][kStride];
  T t[2][kLoraItemRows][kStride];  // the sums' first numbers, the second ones

  // Zeros beyond matrix [num_outputs, ranks], from output `first` on; `valid` is any address.
  __device__ void fetch_matrix(const T* matrix, int rank, int ranks, int first, int num_outputs,
                               const void* valid) {
#pragma unroll
    for (int i = threadIdx.x; i < kBlockOutputs * kPacks; i += kStagedThreads) {
      const int row = i / kPacks;
      const int pack = i % kPacks * kPackSize;
      const bool any = rank + pack < ranks && first + row < num_outputs;
      const void* from = any ? matrix + int64_t{first + row} * ranks + rank + pack : valid;
      copy_async(shared_address(&b[row][pack]), from, any);
    }
  }
  // rows: the item's, in shared memory.
  __device__ void fetch_sums(const CudaLoraExpand& args, const int* rows, int first_rank, int rank,
                             int ranks) {
#pragma unroll
    for (int i = threadIdx.x; i < 2 * kLoraItemRows * kPacks; i += kStagedThreads) {
      const int row = i / kPacks % kLoraItemRows;
      const int number = i / kPacks / kLoraItemRows;
      const int pack = i % kPacks * kPackSize;
      const bool any = rank + pack < ranks && rows[row] >= 0;
      const T* from = static_cast<const T*>(args.t);
      if (any) from += (2 * rows[row] + number) * args.max_ranks + first_rank + rank + pack;
      copy_async(shared_address(&t[number][row][pack]), from, any);
    }
  }
};

// For large ranks: a tile of outputs a warp, the first half of the warps for an item's first 16
// rows and the other for the rest. Ranks go through kStages stages; those of B that are first are
// on their way before the kernels before have ended. Grid: as expand_few_ranks.
template <typename T, typename Out, bool kGated, int kStages>
__global__ __launch_bounds__(kStagedThreads,
                             2) void expand_many_ranks(const __grid_constant__ CudaLoraExpand args,
                                                       int num_tiles) {
  constexpr int kSides = kGated ? 2 : 1;
  extern __shared__ uint4 shared[];
  __shared__ int item_rows[kLoraItemRows];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  if (block.item.count == 0 || (!kGated && block.layer == nullptr)) return wait_for_previous();
  if (threadIdx.x < kLoraItemRows) {
    item_rows[threadIdx.x] = local_row(args.rows, block.item, static_cast<int>(threadIdx.x));
  }
  auto* const stages = reinterpret_cast<Stage<T>(*)[kSides]>(shared);
  const int warp = threadIdx.x / 32;
  const int warp_row = warp / kTiles * 16;
  const int warp_output = warp % kTiles * kTileOutputs;
  bool waits = true;
  for (int index = blockIdx.y; index < num_tiles; index += static_cast<int>(gridDim.y)) {
    const PartTile at = part_tile(args, index);
    const int output = at.first + warp_output + 8 * static_cast<int>(threadIdx.x % 4);
    const auto num_outputs = static_cast<int>(args.num_outputs[at.part]);
    const Sides<T, kGated> sides(args, block.layer, at.part, output);
    const int num_chunks = (sides.most_ranks + kStageRanks - 1) / kStageRanks;
    const auto fetch_matrices = [&](int chunk) {
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
        stages[chunk % kStages][side].fetch_matrix(sides.matrix[side], chunk * kStageRanks,
                                                   sides.ranks[side], at.first, num_outputs,
                                                   args.t);
      }
    };
    const auto fetch_sums = [&](int chunk) {
#pragma unroll
      for (int side = 0; side < kSides; ++side) {
        stages[chunk % kStages][side].fetch_sums(args, item_rows, sides.first_rank[side],
                                                 chunk * kStageRanks, sides.ranks[side]);
      }
    };
    __syncthreads();  // item_rows are there, the stages free
    for (int chunk = 0; chunk < min(kStages, num_chunks); ++chunk) fetch_matrices(chunk);
    if (waits) wait_for_previous();
    waits = false;
    if (sides.keeps_outputs()) continue;
    // A chunk's copies are group `chunk`, the first matrices in the first.
    for (int chunk = 0; chunk < kStages; ++chunk) {
      if (chunk < num_chunks) fetch_sums(chunk);
      commit_copies();
    }
    int rows[2];
    lane_rows(rows, args.rows, block.item, warp_row, output < num_outputs);
    Outputs<Out, kGated> outputs;
    outputs.load(args, rows, at.part, output);
    TileSums sums[kSides] = {};
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      wait_for_copies<kStages - 1>();
      __syncthreads();
      if (warp_row < block.item.count) {
#pragma unroll
        for (int rank = 0; rank < kStageRanks; rank += kLoraRankStep) {
#pragma unroll
          for (int side = 0; side < kSides; ++side) {
            Stage<T>& stage = stages[chunk % kStages][side];
            multiply_tile<T, Stage<T>::kStride, kLoraItemRows * Stage<T>::kStride>(
                sums[side], &stage.t[0][warp_row][rank], &stage.b[warp_output][rank]);
          }
        }
      }
      if (chunk + kStages < num_chunks) {
        __syncthreads();
        fetch_matrices(chunk + kStages);
        fetch_sums(chunk + kStages);
      }
      commit_copies();
    }
    outputs.store(args, rows, at.part, output, sums, sides.change);
  }
  if (waits) wait_for_previous();
}

__device__ __forceinline__ float sum_of_splits(const CudaLoraExpand& args, int row, int rank) {
  const float* at = static_cast<const float*>(args.t) + row * args.max_ranks + rank;
  float sum = 0;
  for (int split = 0; split < args.splits; ++split) {
    sum += at[split * args.rows.num_rows * args.max_ranks];
  }
  return sum;
}

// An output of a part that was `base`.
template <typename T>
__device__ float changed(const CudaLoraExpand& args, const CudaLoraLayer& layer, int part, int row,
                         int output, float base) {
  const int ranks = layer.rank[part];
  const auto* b = static_cast<const T*>(layer.b[part]) + int64_t{output} * ranks;
  float sum = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sum += sum_of_splits(args, row, layer.first_rank[part] + rank) * to_float(b[rank]);
  }
  return output_change(args, &layer, part, output).apply(base, sum, 0);
}

// An output a thread: for float32, and outputs that are no whole number of packs. Grid: items,
// outputs.
template <typename T, typename Out>
__global__ __launch_bounds__(kBlockOutputs) void expand_elements(
    const __grid_constant__ CudaLoraExpand args) {
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  wait_for_previous();
  const PartTile tile = part_tile(args, blockIdx.y);
  const int output = tile.first + static_cast<int>(threadIdx.x);
  if (output >= args.num_outputs[tile.part]) return;
  for (int i = 0; i < block.item.count; ++i) {
    const int row = local_row(args.rows, block.item, i);
    if (row < 0) continue;
    Out* out = static_cast<Out*>(args.out) + row * args.out_stride + output;
    if (!args.silu_and_mul) {
      if (block.layer == nullptr) return;
      out += args.first_output[tile.part];
      if (!changes_part(*block.layer, tile.part)) return;
      *out =
          from_float<Out>(changed<T>(args, *block.layer, tile.part, row, output, to_float(*out)));
      continue;
    }
    const T* gate_up = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride + output;
    float gate = to_float(gate_up[args.first_output[0]]);
    float up = to_float(gate_up[args.first_output[1]]);
    if (block.layer != nullptr) {
      gate = changed<T>(args, *block.layer, 0, row, output, gate);
      up = changed<T>(args, *block.layer, 1, row, output, up);
    }
    *out = from_float<Out>(gate / (1.0f + expf(-gate)) * up);
  }
}

template <typename T, typename Out, bool kGated>
void launch_pairs(CudaStream& stream, const CudaLoraExpand& args, int64_t num_tiles) {
  // Of a large step, blocks enough to fill the device a few times take many tiles each.
  const int64_t items = args.rows.max_items;
  int64_t blocks = num_tiles;
  if (args.rows.num_rows > kMostLoraSplitRows) {
    const int64_t wanted = int64_t{kBlocksEach} * stream.num_multiprocessors();
    blocks = std::clamp<int64_t>(ceil_div<int64_t>(wanted, items), 1, num_tiles);
  }
  const dim3 grid(static_cast<unsigned>(items), static_cast<unsigned>(blocks));
  const auto tiles = static_cast<int>(num_tiles);
  const int64_t ranks = ceil_div<int64_t>(args.max_ranks, args.num_parts);
  constexpr int kStages = kGated ? 2 : 4;
  constexpr size_t kStagesBytes = sizeof(Stage<T>) * kStages * (kGated ? 2 : 1);
  constexpr size_t kRowsBytes = sizeof(int) * kLoraItemRows;
  // GPUs of compute capability 8.6, 8.9 and 12.0 have no room for the stages.
  const bool has_room = kStagesBytes + kRowsBytes <= stream.max_shared_bytes();
  if (ranks > kStageRanks && has_room) {
    const auto kernel = expand_many_ranks<T, Out, kGated, kStages>;
    allow_shared_memory(stream, kernel, kRowsBytes);
    return launch(stream, kernel, grid, dim3(kStagedThreads), kStagesBytes, args, tiles);
  }
  auto kernel = expand_few_ranks < T, Out, kGated, kGated ? 2 : 4 > ;
  if (ranks <= kLoraRankStep) kernel = expand_few_ranks<T, Out, kGated, 1>;
  launch(stream, kernel, grid, dim3(32 * kTiles), 0, args, tiles);
}

bool has_whole_packs(const CudaLoraExpand& args) {
  bool whole = args.out_stride % kPackSize == 0;
  for (int part = 0; part < args.num_parts; ++part) {
    whole &= args.first_output[part] % kPackSize == 0 && args.num_outputs[part] % kPackSize == 0;
  }
  return whole && (!args.silu_and_mul || args.gate_up_stride % kPackSize == 0);
}

}  // namespace

void lora_expand(CudaStream& stream, const CudaLoraExpand& args) {
  if (args.rows.num_rows == 0 || args.rows.max_items == 0) return;
  join_branch(stream, args.branch);
  int64_t tiles = 0;
  for (int part = 0; part < (args.silu_and_mul ? 1 : args.num_parts); ++part) {
    tiles += ceil_div<int64_t>(args.num_outputs[part], kBlockOutputs);
  }
  if (tiles == 0) return;
  const bool is_mixed = args.out_dtype != args.dtype;
  check(!is_mixed || (args.out_dtype == DType::kFloat32 && !args.silu_and_mul),
        "outputs are of the matrices' type, or logits");
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (args.pairs) {
        check(has_whole_packs(args), "parts and rows are whole packs");
        if (args.silu_and_mul) return launch_pairs<T, T, true>(stream, args, tiles);
        return is_mixed ? launch_pairs<T, float, false>(stream, args, tiles)
                        : launch_pairs<T, T, false>(stream, args, tiles);
      }
    }
    const dim3 grid(static_cast<unsigned>(args.rows.max_items), static_cast<unsigned>(tiles));
    const auto kernel = is_mixed ? expand_elements<T, float> : expand_elements<T, T>;
    launch(stream, kernel, grid, dim3(kBlockOutputs), 0, args);
  });
}

}  // namespace quire::ops::cuda
