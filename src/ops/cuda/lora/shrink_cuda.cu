// x A^T of rows with adapters.
#include <type_traits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/branch.cuh"
#include "ops/cuda/lora/rows.cuh"
#include "ops/cuda/lora/shrink.cuh"
#include "ops/cuda/lora/tiles.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {
namespace {

// Warps of a block: many for large products, few beside a kernel that leaves few registers.
constexpr int kManyWarps = 8;
constexpr int kFewWarps = 4;
constexpr int kFewBlocks = 5;  // of few warps, that a multiprocessor has registers for
// Inputs that a block multiplies at a time: 32 for each warp; lane l has the 8 from 8 (l % 4) on.
template <int kWarps>
constexpr int kInputStep = 32 * kWarps;
constexpr int kThreads = 32 * kManyWarps;
constexpr int kLineBytes = 128;
// Ranks of a layer, all parts together.
constexpr int64_t kMostSmallRanks = 192;

// A's rows [first_rank, first_rank + 8 * kTiles), of which those from `ranks` on are zeros, by the
// lane's inputs of kSteps steps. An input's place in the products is the same for x and A and
// otherwise free, so that each lane loads 16 bytes at a time.
template <int kWarps, typename T, int kSteps, int kTiles>
__device__ __forceinline__ void load_matrix(uint4 (&a)[kSteps][kTiles], const T* matrix, int64_t k,
                                            int first_rank, int ranks, int step, int end) {
  const int64_t lane_input = threadIdx.x / 32 * 32 + threadIdx.x % 4 * 8;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int64_t input = int64_t{step + i} * kInputStep<kWarps> + lane_input;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int rank = first_rank + 8 * tile + static_cast<int>(threadIdx.x) % 32 / 4;
      a[i][tile] = make_uint4(0, 0, 0, 0);
      if (step + i < end && input < k && rank < ranks) {
        a[i][tile] = *reinterpret_cast<const uint4*>(matrix + rank * k + input);
      }
    }
  }
}

// Asks for what steps [step, end) read of those rows.
template <int kWarps, typename T>
__device__ __forceinline__ void prefetch_matrix(const T* matrix, int64_t k, int first_rank,
                                                int end_rank, int step, int end) {
  constexpr int kLine = kLineBytes / static_cast<int>(sizeof(T));
  const int first = step * kInputStep<kWarps>;
  const int lines =
      (static_cast<int>(min(k, int64_t{end} * kInputStep<kWarps>)) - first + kLine - 1) / kLine;
  if (lines <= 0) return;
  for (int i = threadIdx.x; i < lines * (end_rank - first_rank); i += 32 * kWarps) {
    const T* line = matrix + (first_rank + i / lines) * k + first + i % lines * kLine;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  }
}

__device__ __forceinline__ bool is_first_block() {
  return blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
}

// Tells the kernel that comes next that the inputs are there, from one thread, which has waited for
// the kernels before. What they have written is complete by then, so nothing is left to order.
__device__ __forceinline__ void announce_inputs(const CudaLoraTiles& tiles) {
  if (tiles.memory == nullptr || threadIdx.x != 0 || !is_first_block()) return;
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(tiles.inputs_are_there), "r"(1)
               : "memory");
}

// A number of t, to each part that it is of.
template <typename T>
__device__ __forceinline__ void store_in_tiles(const CudaLoraTiles& tiles, const LoraBlock& block,
                                               int row, int rank, float sum) {
#pragma unroll
  for (int part = 0; part < kMaxLoraParts; ++part) {
    const int of_part = rank - block.layer->first_rank[part];
    if (of_part < 0 || of_part >= block.layer->rank[part]) continue;
    *lora_tile_number<T>(tiles, part, block.item.slot, of_part, row) =
        from_float<T>(block.layer->scale[part] * sum);
  }
}

// The sum of the warps' sums, and then of the cluster's blocks, in pairs to t; all sums have the
// same order. Row i is the item's row `first + i`. Ends with a barrier of the cluster.
template <typename T, int kWarps, int kRows, int kRanks>
__device__ __forceinline__ void store_sums(const CudaLoraShrink& args, const CudaLoraTiles& tiles,
                                           const LoraBlock& block, int first, int first_rank,
                                           int ranks, float (&sums)[kWarps][kRows * kRanks]) {
  constexpr int kSums = kRows * kRanks;
  constexpr int kThreads = 32 * kWarps;
  __syncthreads();
  for (int i = threadIdx.x; i < kSums; i += kThreads) {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp][i];
    sums[0][i] = sum;
  }
  const int blocks = static_cast<int>(gridDim.x);
  const int split = static_cast<int>(blockIdx.x);
  if (blocks == 1) {
    __syncthreads();
  } else if constexpr (kHasClusters) {
    synchronize_cluster();
  }
  for (int i = kSums * split / blocks + static_cast<int>(threadIdx.x);
       i < kSums * (split + 1) / blocks; i += kThreads) {
    const int row = local_row(args.rows, block.item, first + i / kRanks);
    const int rank = first_rank + i % kRanks;
    if (row < 0 || rank >= ranks) continue;
    float sum = 0;
    if (blocks == 1) {
      sum = sums[0][i];
    } else if constexpr (kHasClusters) {
      const uint32_t address = shared_address(&sums[0][i]);
      float parts[kMaxLoraSplits];
#pragma unroll
      for (int part = 0; part < kMaxLoraSplits; ++part) {
        parts[part] = part < blocks ? load_in_cluster(address_in_cluster(address, part)) : 0.0f;
      }
#pragma unroll
      for (int part = 0; part < kMaxLoraSplits; ++part) sum += parts[part];
    }
    if (tiles.memory != nullptr) {
      store_in_tiles<T>(tiles, block, row, rank, sum);
      continue;
    }
    T* const to = static_cast<T*>(args.t) + 2 * row * args.max_ranks + rank;
    const T rounded = from_float<T>(sum);
    to[0] = rounded;
    to[args.max_ranks] = from_float<T>(sum - to_float(rounded));
  }
  // No block leaves, or goes on, while others read its sums.
  if (blocks == 1) {
    __syncthreads();
  } else if constexpr (kHasClusters) {
    synchronize_cluster();
  }
}

// 16 * kRowTiles rows at a time by 8 * kTiles ranks over a part of the inputs; warps share the
// inputs out, kSteps loads under way in each. Grid: parts of the inputs, which are a cluster;
// ranks; items.
template <typename T, int kWarps, int kRowTiles, int kTiles, int kSteps>
__global__ __launch_bounds__(32 * kWarps, kWarps == kFewWarps ? kFewBlocks : 1) void shrink_pairs(
    const __grid_constant__ CudaLoraShrink args, const __grid_constant__ CudaLoraTiles tiles) {
  constexpr int kRows = 16 * kRowTiles;
  constexpr int kRanks = 8 * kTiles;
  __shared__ float sums[kWarps][kRows * kRanks];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.z);
  const int first_rank = blockIdx.y * kRanks;
  const int ranks = block.layer == nullptr ? 0 : block.layer->ranks;
  if (first_rank >= ranks) {
    // One block that waits keeps the order of kernels.
    if (tiles.memory != nullptr && !is_first_block()) return;
    wait_for_previous();
    return announce_inputs(tiles);
  }

  const int warp = threadIdx.x / 32;
  const int octet = threadIdx.x % 32 / 4;
  const auto num_steps = static_cast<int>((args.k + kInputStep<kWarps> - 1) / kInputStep<kWarps>);
  const int begin = num_steps * static_cast<int>(blockIdx.x) / static_cast<int>(gridDim.x);
  const int end = num_steps * static_cast<int>(blockIdx.x + 1) / static_cast<int>(gridDim.x);
  const auto* matrix = static_cast<const T*>(block.layer->a);
  const auto* in = static_cast<const T*>(args.x);
  uint4 a[kSteps][kTiles];
  load_matrix<kWarps>(a, matrix, args.k, first_rank, ranks, begin, end);
  prefetch_matrix<kWarps>(matrix, args.k, first_rank, min(ranks, first_rank + kRanks),
                          begin + kSteps, end);
  for (int first = 0; first < block.item.count; first += kRows) {
    int rows[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      rows[i / 2][i % 2] = local_row(args.rows, block.item, first + 8 * i + octet);
    }
    if (first == 0) {
      wait_for_previous();
      announce_inputs(tiles);
    } else {
      load_matrix<kWarps>(a, matrix, args.k, first_rank, ranks, begin, end);
    }
    float products[kRowTiles][kTiles][4] = {};
    for (int step = begin; step < end;) {
      uint4 x[kSteps][kRowTiles][2];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int64_t input = int64_t{step + i} * kInputStep<kWarps> + warp * 32 +
                              static_cast<int>(threadIdx.x) % 4 * 8;
        const bool any = step + i < end && input < args.k;
#pragma unroll
        for (int half = 0; half < 2 * kRowTiles; ++half) {
          const int row = rows[half / 2][half % 2];
          uint4& to = x[i][half / 2][half % 2];
          to = make_uint4(0, 0, 0, 0);
          if (any && row >= 0)
            to = *reinterpret_cast<const uint4*>(in + row * args.x_stride + input);
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
          if (row_tile > 0 && first + 16 * row_tile >= block.item.count) continue;
          const uint4 upper = x[i][row_tile][0];
          const uint4 lower = x[i][row_tile][1];
          const uint32_t early[4] = {upper.x, lower.x, upper.y, lower.y};
          const uint32_t late[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            multiply_add<T>(products[row_tile][tile], early, a[i][tile].x, a[i][tile].y);
            multiply_add<T>(products[row_tile][tile], late, a[i][tile].z, a[i][tile].w);
          }
        }
      }
      step += kSteps;
      if (step < end) load_matrix<kWarps>(a, matrix, args.k, first_rank, ranks, step, end);
    }
#pragma unroll
    for (int row_tile = 0; row_tile < kRowTiles; ++row_tile) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float(&values)[4] = products[row_tile][tile];
        const int at = (16 * row_tile + octet) * kRanks + 8 * tile + threadIdx.x % 4 * 2;
        *reinterpret_cast<float2*>(&sums[warp][at]) = make_float2(values[0], values[1]);
        *reinterpret_cast<float2*>(&sums[warp][at + 8 * kRanks]) =
            make_float2(values[2], values[3]);
      }
    }
    store_sums<T, kWarps, kRows, kRanks>(args, tiles, block, first, first_rank, ranks, sums);
  }
}

__device__ __forceinline__ float* sums_of(const CudaLoraShrink& args, int split, int row) {
  return static_cast<float*>(args.t) + (split * args.rows.num_rows + row) * args.max_ranks;
}

// For float32, and inputs that are no whole number of packs. Grid: items, ranks, splits.
template <typename T>
__global__ __launch_bounds__(kThreads) void shrink_elements(
    const __grid_constant__ CudaLoraShrink args) {
  __shared__ float sums[kManyWarps];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  const int rank = blockIdx.y;
  wait_for_previous();
  if (block.layer == nullptr || rank >= block.layer->ranks) return;
  const int split = blockIdx.z;
  const int64_t end = args.k * (split + 1) / args.splits;
  const auto* matrix = static_cast<const T*>(block.layer->a) + rank * args.k;
  for (int i = 0; i < block.item.count; ++i) {
    const int row = local_row(args.rows, block.item, i);
    if (row < 0) continue;
    const auto* in = static_cast<const T*>(args.x) + row * args.x_stride;
    float sum = 0;
    for (int64_t k = args.k * split / args.splits + threadIdx.x; k < end; k += kThreads) {
      sum += to_float(in[k]) * to_float(matrix[k]);
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      float total = 0;
      for (const float part : sums) total += part;
      sums_of(args, split, row)[rank] = total;
    }
    __syncthreads();
  }
}

template <typename T, int kWarps, int kRowTiles, int kTiles, int kSteps>
void launch_pairs(CudaStream& stream, const CudaLoraShrink& args, const CudaLoraTiles& tiles) {
  // A cluster, which is what adds the parts up, needs compute capability 9.0.
  const bool has_clusters = stream.compute_capability() >= 90;
  const auto splits = static_cast<unsigned>(has_clusters ? args.splits : 1);
  cudaLaunchConfig_t config = {};
  config.gridDim =
      dim3(splits, static_cast<unsigned>(ceil_div<int64_t>(args.max_ranks, 8 * kTiles)),
           static_cast<unsigned>(args.rows.max_items));
  config.blockDim = dim3(32 * kWarps);
  config.stream = stream.get();
  cudaLaunchAttribute attributes[3] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = splits;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  // Not several on a multiprocessor, where they would take the room of the kernel that runs beside.
  attributes[2].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
  attributes[2].val.clusterSchedulingPolicyPreference = cudaClusterSchedulingPolicySpread;
  config.attrs = attributes;
  const bool spreads = tiles.memory != nullptr;
  config.numAttrs = !has_clusters ? 0 : splits == 1 ? 1 : spreads ? 3 : 2;
  launch_branch(stream, args.branch, [&] {
    check_cuda(cudaLaunchKernelEx(&config, shrink_pairs<T, kWarps, kRowTiles, kTiles, kSteps>, args,
                                  tiles),
               "launching a kernel");
  });
}

void shrink_by_tensor_cores(CudaStream& stream, const CudaLoraShrink& args,
                            const CudaLoraTiles& tiles) {
  check(takes_lora_pairs(args.dtype, args.k) && args.x_stride % kPackSize == 0,
        "rows are whole packs");
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (tiles.memory != nullptr) {
        const bool has_long_items = args.rows.num_rows > 16 * tiles.num_slots;
        if (has_long_items) return launch_pairs<T, kFewWarps, 2, 2, 2>(stream, args, tiles);
        return launch_pairs<T, kFewWarps, 1, 2, 4>(stream, args, tiles);
      }
      // Small ranks of few rows have nothing to share, and the more blocks the better.
      const bool is_small = args.max_ranks <= kMostSmallRanks;
      if (is_small && args.rows.num_rows <= kMostLoraSplitRows) {
        return launch_pairs<T, kManyWarps, 1, 2, 4>(stream, args, tiles);
      }
      launch_pairs<T, kManyWarps, 2, 4, 2>(stream, args, tiles);
    }
  });
}

}  // namespace

void lora_shrink(CudaStream& stream, const CudaLoraShrink& args) {
  if (args.rows.num_rows == 0 || args.rows.max_items == 0 || args.max_ranks == 0) return;
  if (args.pairs) return shrink_by_tensor_cores(stream, args, {});
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    const dim3 grid(static_cast<unsigned>(args.rows.max_items),
                    static_cast<unsigned>(args.max_ranks), static_cast<unsigned>(args.splits));
    launch(stream, shrink_elements<T>, grid, dim3(kThreads), 0, args);
  });
}

void lora_shrink_to_tiles(CudaStream& stream, const CudaLoraShrink& args,
                          const CudaLoraTiles& tiles) {
  shrink_by_tensor_cores(stream, args, tiles);
}

}  // namespace quire::ops::cuda
