// Both products of adapters of small rank for few rows, in one kernel.
#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/lora/lora.cuh"
#include "ops/cuda/lora/rows.cuh"
#include "ops/cuda/lora/tile.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {
namespace {

// Blocks of a cluster, which share out an item's inputs and then its outputs.
constexpr int kBlocks = 8;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kInputStep = 32 * kWarps;
// Tiles whose weights a warp has under way.
constexpr int kAhead = 3;

struct OutputTile {
  int part;   // the gate's, of gate and up
  int first;  // output of the part
};

template <bool kGated>
__device__ __forceinline__ OutputTile output_tile(const CudaLoraExpand& args, int tile) {
  OutputTile result = {0, tile * kTileOutputs};
  if constexpr (!kGated) {
    for (; result.part + 1 < args.num_parts; ++result.part) {
      const auto width = static_cast<int>(args.num_outputs[result.part] + kTileOutputs - 1) /
                         kTileOutputs * kTileOutputs;
      if (result.first < width) break;
      result.first -= width;
    }
  }
  return result;
}

__device__ __forceinline__ bool changes_layer(const CudaLoraExpand& args,
                                              const CudaLoraLayer* layer) {
  bool changes = false;
  for (int part = 0; part < args.num_parts; ++part) {
    changes |= layer != nullptr && changes_part(*layer, part);
  }
  return changes;
}

// x A^T of 16 rows by 8 * kTiles ranks over the inputs of one block; as shrink_tiles.
template <typename T, int kTiles>
class PartialProducts {
 public:
  __device__ PartialProducts(const CudaLoraExpand& args, const CudaLoraLayer& layer, int block)
      : args_(args), matrix_(static_cast<const T*>(layer.a)), ranks_(layer.ranks) {
    const auto num_steps = static_cast<int>((args.k + kInputStep - 1) / kInputStep);
    step_ = num_steps * block / kBlocks;
    end_ = num_steps * (block + 1) / kBlocks;
    load_a();
  }

  // After the kernel before has ended.
  __device__ void multiply(const int (&rows)[2]) {
    const auto* in = static_cast<const T*>(args_.x);
    while (step_ < end_) {
      uint4 x[kSteps][2];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int64_t input = input_of(i);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          x[i][half] = make_uint4(0, 0, 0, 0);
          if (step_ + i < end_ && input < args_.k && rows[half] >= 0) {
            x[i][half] = *reinterpret_cast<const uint4*>(in + rows[half] * args_.x_stride + input);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const uint32_t first[4] = {x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y};
        const uint32_t second[4] = {x[i][0].z, x[i][1].z, x[i][0].w, x[i][1].w};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_add<T>(products_[tile], first, a_[i][tile].x, a_[i][tile].y);
          multiply_add<T>(products_[tile], second, a_[i][tile].z, a_[i][tile].w);
        }
      }
      step_ += kSteps;
      if (step_ < end_) load_a();
    }
  }

  // To this warp's sums.
  __device__ void store(float (&sums)[kLoraItemRows][8 * kTiles]) const {
    const int octet = threadIdx.x % 32 / 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int column = 8 * tile + threadIdx.x % 4 * 2;
      sums[octet][column] = products_[tile][0];
      sums[octet][column + 1] = products_[tile][1];
      sums[octet + 8][column] = products_[tile][2];
      sums[octet + 8][column + 1] = products_[tile][3];
    }
  }

 private:
  static constexpr int kSteps = 2;

  __device__ int64_t input_of(int i) const {
    return int64_t{step_ + i} * kInputStep + threadIdx.x / 32 * 32 + threadIdx.x % 4 * 8;
  }
  __device__ void load_a() {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int64_t input = input_of(i);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int rank = 8 * tile + static_cast<int>(threadIdx.x) % 32 / 4;
        a_[i][tile] = make_uint4(0, 0, 0, 0);
        if (step_ + i < end_ && input < args_.k && rank < ranks_) {
          a_[i][tile] = *reinterpret_cast<const uint4*>(matrix_ + rank * args_.k + input);
        }
      }
    }
  }

  const CudaLoraExpand& args_;
  const T* matrix_;
  int ranks_;
  int step_;
  int end_;
  uint4 a_[kSteps][kTiles];
  float products_[kTiles][4] = {};
};

// Grid: blocks of a cluster, items.
template <typename T, bool kGated, int kTiles>
__global__ __launch_bounds__(kThreads) void both_products(
    const __grid_constant__ CudaLoraExpand args) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kSides = kGated ? 2 : 1;
  constexpr int kRanks = 8 * kTiles;
  constexpr int kStride = kRanks + 8;
  __shared__ float sums[kWarps][kLoraItemRows][kRanks];
  __shared__ float block_sums[kLoraItemRows][kRanks];
  __shared__ alignas(16) T high[kLoraItemRows][kStride];
  __shared__ alignas(16) T low[kLoraItemRows][kStride];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.y);
  const int all_ranks = block.layer == nullptr ? 0 : block.layer->ranks;
  if (block.item.count == 0 || (!kGated && !changes_layer(args, block.layer))) {
    return wait_for_previous();
  }

  const int warp = threadIdx.x / 32;
  const int octet = threadIdx.x % 32 / 4;
  const int rows[2] = {local_row(args.rows, block.item, octet),
                       local_row(args.rows, block.item, octet + 8)};
  int num_tiles = 0;
  for (int part = 0; part < (kGated ? 1 : args.num_parts); ++part) {
    num_tiles += static_cast<int>(args.num_outputs[part] + kTileOutputs - 1) / kTileOutputs;
  }
  int tile = static_cast<int>(blockIdx.x) * kWarps + warp;

  // Those of the first 16 ranks.
  TileWeights b[kAhead][kSides];
  const auto load_b = [&](int ahead, int of_tile) {
    const OutputTile at = output_tile<kGated>(args, of_tile);
    const auto width = static_cast<int>(args.num_outputs[at.part]);
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      const bool any = of_tile < num_tiles && all_ranks > 0;
      const int ranks = any ? block.layer->rank[at.part + side] : 0;
      const void* matrix = ranks > 0 ? block.layer->b[at.part + side] : nullptr;
      b[ahead][side] = load_weights<T>(matrix, ranks, width, at.first, 0);
    }
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_b(i, tile + i * kBlocks * kWarps);

  if (all_ranks > 0) {
    PartialProducts<T, kTiles> partial(args, *block.layer, blockIdx.x);
    wait_for_previous();
    partial.multiply(rows);
    partial.store(sums[warp]);
    __syncthreads();
    for (int i = threadIdx.x; i < kLoraItemRows * kRanks; i += kThreads) {
      float sum = 0;
#pragma unroll
      for (int part = 0; part < kWarps; ++part) sum += sums[part][i / kRanks][i % kRanks];
      block_sums[i / kRanks][i % kRanks] = sum;
    }
    synchronize_cluster();
    for (int i = threadIdx.x; i < kLoraItemRows * kRanks; i += kThreads) {
      const uint32_t address = shared_address(&block_sums[i / kRanks][i % kRanks]);
      float parts[kBlocks];
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) {
        parts[part] = load_in_cluster(address_in_cluster(address, part));
      }
      float sum = 0;
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) sum += parts[part];
      const T rounded = from_float<T>(sum);
      high[i / kRanks][i % kRanks] = rounded;
      low[i / kRanks][i % kRanks] = from_float<T>(sum - to_float(rounded));
    }
    // No block leaves while others read its sums.
    synchronize_cluster();
  } else {
    wait_for_previous();
  }

  const auto finish_tile = [&](const TileWeights(&first_weights)[kSides]) {
    const OutputTile at = output_tile<kGated>(args, tile);
    const auto width = static_cast<int>(args.num_outputs[at.part]);
    const int output = at.first + 8 * (threadIdx.x % 4);
    TileSums added[kSides] = {};
    OutputChange changes[kSides];
#pragma unroll
    for (int side = 0; side < kSides; ++side) {
      changes[side] = output_change(args, block.layer, at.part + side, output);
      const int ranks = all_ranks == 0 ? 0 : block.layer->rank[at.part + side];
      if (ranks == 0) continue;
      const int first_rank = block.layer->first_rank[at.part + side];
      for (int rank = 0; rank < ranks; rank += kLoraRankStep) {
        const TileWeights weights = rank == 0 ? first_weights[side]
                                              : load_weights<T>(block.layer->b[at.part + side],
                                                                ranks, width, at.first, rank);
        multiply_tile<T, kStride>(added[side], &high[0][0], first_rank + rank, weights);
        multiply_tile<T, kStride>(added[side], &low[0][0], first_rank + rank, weights);
      }
    }
    if (output >= width) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (rows[half] < 0) continue;
      T* out = static_cast<T*>(args.out) + rows[half] * args.out_stride + output;
      if constexpr (kGated) {
        const T* gate_up =
            static_cast<const T*>(args.gate_up) + rows[half] * args.gate_up_stride + output;
        store_pack(out,
                   gate_sums<T>(load_pack(gate_up + args.first_output[0]),
                                load_pack(gate_up + args.first_output[1]), added, half, changes));
      } else {
        out += args.first_output[at.part];
        store_pack(out, add_sums<T>(load_pack(out), added[0], half, changes[0]));
      }
    }
  };
  while (tile < num_tiles) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (tile >= num_tiles) break;
      finish_tile(b[i]);
      load_b(i, tile + kAhead * kBlocks * kWarps);
      tile += kBlocks * kWarps;
    }
  }
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

template <typename T, bool kGated, int kTiles>
void launch_cluster(CudaStream& stream, const CudaLoraExpand& args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kBlocks, static_cast<unsigned>(args.rows.max_items));
  config.blockDim = dim3(kThreads);
  config.stream = stream.get();
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = kBlocks;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, both_products<T, kGated, kTiles>, args),
             "launching a kernel");
}

template <typename T>
void launch_of_type(CudaStream& stream, const CudaLoraExpand& args) {
  constexpr int kMostTiles = static_cast<int>(kMostLoraRanksInOne / 8);
  if (args.silu_and_mul) return launch_cluster<T, true, kMostTiles>(stream, args);
  if (args.max_ranks <= 16) return launch_cluster<T, false, 2>(stream, args);
  launch_cluster<T, false, kMostTiles>(stream, args);
}

}  // namespace

void lora_in_one(CudaStream& stream, const CudaLoraExpand& args) {
  if (args.dtype == DType::kFloat16) {
    launch_of_type<__half>(stream, args);
  } else {
    launch_of_type<__nv_bfloat16>(stream, args);
  }
}

}  // namespace quire::ops::cuda
