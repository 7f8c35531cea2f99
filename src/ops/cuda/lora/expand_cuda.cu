// What adapters add to a layer's outputs.
#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/lora.cuh"
#include "ops/cuda/lora/rows.cuh"
#include "ops/cuda/lora/tile.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
// Outputs of a block.
constexpr int kBlockOutputs = kWarps * kTileOutputs;
// Ranks whose sums are in shared memory at a time; a row is padded against bank conflicts.
constexpr int kSteps = 4;
constexpr int kRanks = kSteps * kLoraRankStep;
constexpr int kRowStride = kRanks + 8;

// Outputs of part `part` that block `tile` of the grid has begin at `first`.
struct PartTile {
  int part;
  int first;
};

__device__ __forceinline__ PartTile part_tile(const CudaLoraExpand& args, int tile) {
  PartTile result = {0, tile};
  for (; result.part + 1 < args.num_parts; ++result.part) {
    const auto tiles =
        static_cast<int>((args.num_outputs[result.part] + kBlockOutputs - 1) / kBlockOutputs);
    if (result.first < tiles) break;
    result.first -= tiles;
  }
  result.first *= kBlockOutputs;
  return result;
}

__device__ __forceinline__ float sum_of_splits(const CudaLoraExpand& args, int row, int rank) {
  const float* at = args.t + row * args.max_ranks + rank;
  float sum = 0;
  for (int split = 0; split < args.splits; ++split) {
    sum += at[split * args.rows.num_rows * args.max_ranks];
  }
  return sum;
}

// A tile a warp, of one part, or with kGated of gate and up. Grid: items, outputs.
template <typename T, bool kGated>
__global__ __launch_bounds__(kThreads) void expand_tiles(
    const __grid_constant__ CudaLoraExpand args) {
  constexpr int kSides = kGated ? 2 : 1;
  __shared__ alignas(16) T high[kSides][kLoraItemRows][kRowStride];
  __shared__ alignas(16) T low[kSides][kLoraItemRows][kRowStride];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  const PartTile tile = kGated ? PartTile{0, static_cast<int>(blockIdx.y) * kBlockOutputs}
                               : part_tile(args, blockIdx.y);
  int ranks[kSides];
  int most_ranks = 0;
#pragma unroll
  for (int side = 0; side < kSides; ++side) {
    ranks[side] = block.layer == nullptr ? 0 : block.layer->rank[tile.part + side];
    most_ranks = max(most_ranks, ranks[side]);
  }
  if (block.item.count == 0 ||
      (!kGated && (block.layer == nullptr || !changes_part(*block.layer, tile.part)))) {
    return wait_for_previous();
  }

  const int octet = threadIdx.x % 32 / 4;
  const auto num_outputs = static_cast<int>(args.num_outputs[tile.part]);
  const int first_output = tile.first + static_cast<int>(threadIdx.x) / 32 * kTileOutputs;
  TileWeights b[kSides][kSteps];
  const auto load_b = [&](int first_rank) {
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      const void* matrix = ranks[side] == 0 ? nullptr : block.layer->b[tile.part + side];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        b[side][step] = load_weights<T>(matrix, ranks[side], num_outputs, first_output,
                                        first_rank + step * kLoraRankStep);
      }
    }
  };
  load_b(0);
  const int rows[2] = {local_row(args.rows, block.item, octet),
                       local_row(args.rows, block.item, octet + 8)};
  wait_for_previous();

  TileSums sums[kSides] = {};
  for (int first_rank = 0; first_rank < most_ranks; first_rank += kRanks) {
    const int width = min(kRanks, most_ranks - first_rank);
    if (first_rank > 0) {
      load_b(first_rank);
      __syncthreads();
    }
    for (int i = threadIdx.x; i < kSides * kLoraItemRows * width; i += kThreads) {
      const int rank = i % width;
      const int item_row = i / width % kLoraItemRows;
      const int side = kGated ? i / width / kLoraItemRows : 0;
      const int row = local_row(args.rows, block.item, item_row);
      float sum = 0;
      if (row >= 0 && first_rank + rank < (side == 0 ? ranks[0] : ranks[kSides - 1])) {
        sum =
            sum_of_splits(args, row, block.layer->first_rank[tile.part + side] + first_rank + rank);
      }
      const T rounded = from_float<T>(sum);
      high[side][item_row][rank] = rounded;
      low[side][item_row][rank] = from_float<T>(sum - to_float(rounded));
    }
    __syncthreads();
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int rank = step * kLoraRankStep;
        if (rank >= width) continue;
        multiply_tile<T, kRowStride>(sums[side], &high[side][0][0], rank, b[side][step]);
        multiply_tile<T, kRowStride>(sums[side], &low[side][0][0], rank, b[side][step]);
      }
    }
  }

  const int output = first_output + 8 * (threadIdx.x % 4);
  if (output >= num_outputs) return;
  OutputChange changes[kSides];
#pragma unroll
  for (int side = 0; side < kSides; ++side) {
    changes[side] = output_change(args, block.layer, tile.part + side, output);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (rows[half] < 0) continue;
    T* out = static_cast<T*>(args.out) + rows[half] * args.out_stride + output;
    if constexpr (kGated) {
      const T* gate_up =
          static_cast<const T*>(args.gate_up) + rows[half] * args.gate_up_stride + output;
      store_pack(out, gate_sums<T>(load_pack(gate_up + args.first_output[0]),
                                   load_pack(gate_up + args.first_output[1]), sums, half, changes));
    } else {
      out += args.first_output[tile.part];
      store_pack(out, add_sums<T>(load_pack(out), sums[0], half, changes[0]));
    }
  }
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
template <typename T>
__global__ __launch_bounds__(kThreads) void expand_elements(
    const __grid_constant__ CudaLoraExpand args) {
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  wait_for_previous();
  const PartTile tile = args.silu_and_mul
                            ? PartTile{0, static_cast<int>(blockIdx.y) * kBlockOutputs}
                            : part_tile(args, blockIdx.y);
  const int output = tile.first + static_cast<int>(threadIdx.x);
  if (output >= args.num_outputs[tile.part]) return;
  for (int i = 0; i < block.item.count; ++i) {
    const int row = local_row(args.rows, block.item, i);
    if (row < 0) continue;
    T* out = static_cast<T*>(args.out) + row * args.out_stride + output;
    if (!args.silu_and_mul) {
      if (block.layer == nullptr) return;
      out += args.first_output[tile.part];
      if (!changes_part(*block.layer, tile.part)) return;
      *out = from_float<T>(changed<T>(args, *block.layer, tile.part, row, output, to_float(*out)));
      continue;
    }
    const T* gate_up = static_cast<const T*>(args.gate_up) + row * args.gate_up_stride + output;
    float gate = to_float(gate_up[args.first_output[0]]);
    float up = to_float(gate_up[args.first_output[1]]);
    if (block.layer != nullptr) {
      gate = changed<T>(args, *block.layer, 0, row, output, gate);
      up = changed<T>(args, *block.layer, 1, row, output, up);
    }
    *out = from_float<T>(gate / (1.0f + expf(-gate)) * up);
  }
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
  if (args.x != nullptr) return lora_in_one(stream, args);
  int64_t tiles = 0;
  for (int part = 0; part < (args.silu_and_mul ? 1 : args.num_parts); ++part) {
    tiles += ceil_div<int64_t>(args.num_outputs[part], kBlockOutputs);
  }
  const dim3 grid(static_cast<unsigned>(args.rows.max_items), static_cast<unsigned>(tiles));
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (has_whole_packs(args)) {
        return args.silu_and_mul
                   ? launch(stream, expand_tiles<T, true>, grid, dim3(kThreads), 0, args)
                   : launch(stream, expand_tiles<T, false>, grid, dim3(kThreads), 0, args);
      }
    }
    launch(stream, expand_elements<T>, grid, dim3(kThreads), 0, args);
  });
}

}  // namespace quire::ops::cuda
