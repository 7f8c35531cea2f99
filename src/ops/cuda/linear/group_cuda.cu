// A block multiplies a tile of integer weights with a tile of activations. Weights come through a
// ring of stages by plain bulk copies, as their layout has what a stage needs in one piece, and are
// expanded in registers (group_products.cuh); activations come by tensor copies.
//
// A block asks for as many weights as its stages hold before it waits for the kernel before it.
// Activations come after that, from the L2 cache, and have a few stages of their own. With many
// rows, warpgroups share them. The blocks of a cluster share a tile of outputs, as in
// skinny_linear.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/linear/group.cuh"
#include "ops/cuda/linear/group_products.cuh"
#include "ops/cuda/linear/skinny.cuh"
#include "ops/cuda/linear/stages.cuh"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"
#include "ops/cuda/ptx/tma.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"
#include "ops/cuda/tensor_map_cuda.h"

namespace quire::ops::cuda {
namespace {

constexpr int kMostGroupInStages = 4;  // of activations: no more than of weights

struct GroupArgs {
  SkinnyArgs tile;
  const std::byte* weights;
  int num_panels;
  int num_in_stages;
};

// Shared memory: stages of activations, two boxes of 64 inputs each, and sums, which take their
// place at the end where those are rescaled; stages of weights, a panel after the other; barriers.
template <typename Kind, int kTileColumns, int kTileRows>
struct GroupMemory {
  static constexpr int kPanels = kTileColumns / kPanel;
  static constexpr int kWeightBytes = kPanels * Kind::kBlockBytes;
  static constexpr int kBoxBytes = kTileRows * kBytesOfDepth;
  static constexpr int kInBytes = 2 * kBoxBytes;
  static constexpr int kBarriers = 2 + kMaxStages + 2 * kMostGroupInStages;
  static constexpr bool kSumsReplaceIn = rescales_sums(kTileRows);
  static constexpr int kSumsBytes = sums_bytes(kTileColumns, kTileRows);

  uint32_t start;
  int num_stages;
  int num_in_stages;

  __host__ __device__ static constexpr int bytes(int num_stages, int num_in_stages) {
    return kTileAlignment + bytes_before_weights(num_in_stages) + num_stages * kWeightBytes +
           8 * kBarriers;
  }
  __host__ __device__ static constexpr int bytes_before_weights(int num_in_stages) {
    const int in_bytes = num_in_stages * kInBytes;
    if (!kSumsReplaceIn) return in_bytes + kSumsBytes;
    return in_bytes > kSumsBytes ? in_bytes : kSumsBytes;
  }
  __device__ uint32_t in(int stage) const { return start + stage * kInBytes; }
  __device__ uint32_t sums() const { return kSumsReplaceIn ? start : in(num_in_stages); }
  __device__ uint32_t weights(int stage) const {
    return start + bytes_before_weights(num_in_stages) + stage * kWeightBytes;
  }
  __device__ uint32_t exchange_barrier() const { return weights(num_stages); }
  __device__ uint32_t weights_filled(int stage) const {
    return exchange_barrier() + 16 + 8 * stage;
  }
  __device__ uint32_t in_filled(int stage) const { return weights_filled(kMaxStages + stage); }
  // Both the stage of activations and the weights that they were multiplied with.
  __device__ uint32_t emptied(int stage) const { return in_filled(kMostGroupInStages + stage); }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Fetches blocks [first, end) of k: one thread, or a warp whose lanes copy a panel each where there
// are many panels.
template <typename Kind, int kTileColumns, int kTileRows>
struct GroupProducer {
  using Memory = GroupMemory<Kind, kTileColumns, kTileRows>;
  static constexpr int kLanes = kTileColumns > kGroupColumns ? 32 : 1;
  Memory memory;
  const CUtensorMap* in_map;
  const GroupArgs* args;
  int first_block;
  int end_block;
  int first_panel;  // two parts of half a tile each
  int second_panel;
  int first_row;

  __device__ void fetch_weights(int block, int stage) const {
    const int lane = threadIdx.x % 32;
    const uint32_t filled = memory.weights_filled(stage);
    if (lane == 0) barrier_arrive_expecting(filled, Memory::kWeightBytes);
    if constexpr (kLanes > 1) __syncwarp();
#pragma unroll
    for (int i = lane; i < Memory::kPanels; i += kLanes) {
      const int half = Memory::kPanels / 2;
      const int panel = i < half ? first_panel + i : second_panel + i - half;
      // Panels outside of the weight are multiplied, and not stored.
      const int64_t at = int64_t{min(panel, args->num_panels - 1)} * args->tile.num_blocks + block;
      copy_bulk(memory.weights(stage) + i * Kind::kBlockBytes,
                args->weights + at * Kind::kBlockBytes, Kind::kBlockBytes, filled);
    }
  }
  __device__ void fetch_in(int block, int stage) const {
    if (threadIdx.x % 32 != 0) return;
    const uint32_t filled = memory.in_filled(stage);
    barrier_arrive_expecting(filled, Memory::kInBytes);
    const int column = block * static_cast<int>(kTileInputs);
    copy_box(memory.in(stage), *in_map, column, first_row, filled);
    copy_box(memory.in(stage) + Memory::kBoxBytes, *in_map, column + kDepth, first_row, filled);
  }
  __device__ int num_blocks() const {
    return end_block - first_block;
  }
  __device__ void fetch_early_weights() const {
    const int count = min(memory.num_stages, num_blocks());
    for (int i = 0; i < count; ++i) fetch_weights(first_block + i, i);
  }
  // After the kernel before is done. There are no more stages of activations than of weights.
  __device__ void fetch_rest() const {
    const int count = min(memory.num_in_stages, num_blocks());
    for (int i = 0; i < count; ++i) fetch_in(first_block + i, i);
    StageCursor in;
    StageCursor weights;
    for (int i = memory.num_in_stages; i < num_blocks(); ++i) {
      const int next_weights = i - memory.num_in_stages + memory.num_stages;
      wait_for_stage(memory.emptied(in.stage), in.parity);
      fetch_in(first_block + i, in.stage);
      if (next_weights < num_blocks()) fetch_weights(first_block + next_weights, weights.stage);
      in.advance(memory.num_in_stages);
      weights.advance(memory.num_stages);
    }
  }
};

// Multiplies what is fetched.
template <typename Kind, int kTileColumns, int kTileRows>
__device__ void multiply_groups(const GroupProducer<Kind, kTileColumns, kTileRows>& work,
                                float (&sums)[kTileRows / 2]) {
  const auto& memory = work.memory;
  constexpr int kBoxBytes = GroupMemory<Kind, kTileColumns, kTileRows>::kBoxBytes;
  StageCursor weights;
  StageCursor in;
  [[maybe_unused]] GroupScales scales = {1, 1};
  const auto wait_for_in = [&] {
    wait_for_stage(memory.in_filled(in.stage), in.parity);
    return memory.in(in.stage);
  };
  for (int block = work.first_block; block < work.end_block; ++block) {
    wait_for_stage(memory.weights_filled(weights.stage), weights.parity);
    const StagePanel<Kind> panel(memory.weights(weights.stage));
    if constexpr (kTileRows <= kFewTileRows) {
      multiply_few<Kind, kTileRows>(panel, wait_for_in(), kBoxBytes, sums);
    } else if constexpr (rescales_sums(kTileRows)) {
      multiply_rescaled<Kind, kTileRows>(panel, wait_for_in, kBoxBytes, scales, sums);
    } else {
      multiply_stage<Kind, kTileRows>(panel, wait_for_in(), kBoxBytes, sums);
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(memory.emptied(in.stage));
    weights.advance(memory.num_stages);
    in.advance(memory.num_in_stages);
  }
  if constexpr (rescales_sums(kTileRows)) scale_sums(sums, scales.low, scales.high);
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Blocks of a multiprocessor that registers leave room for: while one waits, others expand.
constexpr int group_blocks(int warpgroups, int tile_rows) {
  if (warpgroups > 1) return 1;
  return tile_rows <= kFewTileRows ? 5 : 3;
}

// Grid: parts of k (a cluster), tiles of rows, tiles of columns.
template <typename Kind, int kWarpgroups, int kTileRows>
__global__ __launch_bounds__(
    kWarpgroups* kGroupThreads + kProducerThreads,
    group_blocks(kWarpgroups,
                 kTileRows)) void group_linear_kernel(const __grid_constant__ CUtensorMap in_map,
                                                      const __grid_constant__ GroupArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTileColumns = kWarpgroups * kGroupColumns;
  constexpr int kThreads = kWarpgroups * kGroupThreads;
  extern __shared__ char shared[];
  const SkinnyArgs& tile = args.tile;
  const uint32_t start = shared_address(shared);
  const GroupMemory<Kind, kTileColumns, kTileRows> memory = {
      (start + kTileAlignment - 1) / kTileAlignment * kTileAlignment, tile.num_stages,
      args.num_in_stages};
  const Exchange<kTileColumns, kTileRows> exchange = {memory.sums(), memory.exchange_barrier(),
                                                      tile.log2_splits, 0};
  const int part = blockIdx.x;
  const int first_column = blockIdx.z * (tile.silu_and_mul ? kTileColumns / 2 : kTileColumns);
  const int second_column = first_column + (tile.silu_and_mul ? tile.n / 2 : kTileColumns / 2);
  const GroupProducer<Kind, kTileColumns, kTileRows> producer = {
      memory,
      &in_map,
      &args,
      tile.num_blocks * part >> tile.log2_splits,
      tile.num_blocks * (part + 1) >> tile.log2_splits,
      first_column / kPanel,
      second_column / kPanel,
      static_cast<int>(blockIdx.y) * kTileRows};
  const bool is_producer = threadIdx.x >= kThreads && threadIdx.x < kThreads + producer.kLanes;
  if (threadIdx.x == kThreads) {
    for (int i = 0; i < memory.num_stages; ++i) barrier_init(memory.weights_filled(i), 1);
    for (int i = 0; i < memory.num_in_stages; ++i) {
      barrier_init(memory.in_filled(i), 1);
      barrier_init(memory.emptied(i), kThreads / 32);
    }
    exchange.expect();
    fence_barrier_init();
    fence_async_proxy_everywhere();
    prefetch_map(in_map);
  }
  if constexpr (producer.kLanes > 1) __syncwarp();
  if (is_producer) producer.fetch_early_weights();
  release_next();
  __syncthreads();
  if (gridDim.x > 1) synchronize_cluster();
  if (is_producer) {
    wait_for_previous();
    producer.fetch_rest();
  }
  if (threadIdx.x >= kThreads) {
    if constexpr (memory.kSumsReplaceIn) {
      __syncwarp();
      if (gridDim.x > 1) synchronize_cluster();
    }
    return;
  }

  float sums[kTileRows / 2] = {};
  multiply_groups<Kind, kTileColumns, kTileRows>(producer, sums);
  if constexpr (memory.kSumsReplaceIn) {
    // Where all blocks of the cluster have read their activations for the last time.
    if (gridDim.x > 1) {
      synchronize_cluster();
    } else {
      named_barrier_wait(1, kThreads);
    }
  }
#pragma unroll
  for (int octet = 0; octet < kTileRows / 8; ++octet) {
    const float quad[4] = {sums[4 * octet], sums[4 * octet + 1], sums[4 * octet + 2],
                           sums[4 * octet + 3]};
    exchange.send(octet, quad);
  }
  exchange.finish_sending();
  while (!barrier_try_acquire_in_cluster(exchange.barrier, 0)) {
  }
  if (tile.silu_and_mul) {
    finish_tile<typename Kind::T, true>(tile, exchange);
  } else {
    finish_tile<typename Kind::T, false>(tile, exchange);
  }
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

template <typename Kind, int kWarpgroups, int kTileRows>
void launch_group(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan) {
  constexpr int kTileColumns = kWarpgroups * kGroupColumns;
  const auto kernel = group_linear_kernel<Kind, kWarpgroups, kTileRows>;
  const int shared_bytes =
      GroupMemory<Kind, kTileColumns, kTileRows>::bytes(plan.num_stages, plan.num_in_stages);
  check(shared_bytes <= static_cast<int>(stream.max_shared_bytes()),
        "a plan's stages fit the shared memory");
  allow_shared_memory(stream, kernel);
  const CUtensorMap in_map =
      matrix_tensor_map(stream,
                        kIsBFloat16<typename Kind::T> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                      : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                        args.in, args.rows, args.k, args.in_stride, kTileRows);
  const GroupArgs kernel_args = {
      {.bias = args.bias,
       .out = args.out,
       .out_stride = args.out_stride,
       .rows = static_cast<int>(args.rows),
       .n = static_cast<int>(args.n),
       .num_blocks = static_cast<int>(ceil_div(args.k, kTileInputs)),
       .num_stages = plan.num_stages,
       .log2_splits = std::countr_zero(static_cast<unsigned>(plan.splits)),
       .cluster_rows = 1,
       .cluster_columns = 1,
       .float_out = args.out_dtype == DType::kFloat32,
       .silu_and_mul = args.silu_and_mul,
       .half_out = args.dtype == DType::kFloat16},
      static_cast<const std::byte*>(args.weight.data),
      static_cast<int>(ceil_div(args.n, kTileOutputs)),
      plan.num_in_stages};
  const auto splits = static_cast<unsigned>(plan.splits);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(splits, static_cast<unsigned>(ceil_div(args.rows, kTileRows)),
                        static_cast<unsigned>(ceil_div(args.n, kTileColumns)));
  config.blockDim = dim3(kWarpgroups * kGroupThreads + kProducerThreads);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream.get();
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = splits;
  attributes[1].val.clusterDim.y = 1;
  attributes[1].val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, in_map, kernel_args), "launching a kernel");
}

template <typename Kind>
void launch_of_rows(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan) {
  switch (plan.tile_rows) {
    case 8:
      return launch_group<Kind, 1, 8>(stream, args, plan);
    case 16:
      return launch_group<Kind, 1, 16>(stream, args, plan);
    case 64:
      return launch_group<Kind, 1, 64>(stream, args, plan);
    default:
      check(plan.tile_rows == 128, "a plan's tile has a kernel");
      if (plan.warpgroups == 1) return launch_group<Kind, 1, 128>(stream, args, plan);
      check(plan.warpgroups == 3, "a plan's tile has a kernel");
      launch_group<Kind, 3, 128>(stream, args, plan);
  }
}

template <typename T, bool kFourBits, bool kShifts>
void launch_of_groups(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan,
                      int groups) {
  if (groups == 1) {
    launch_of_rows<GroupKind<T, kFourBits, kShifts, 1>>(stream, args, plan);
  } else {
    launch_of_rows<GroupKind<T, kFourBits, kShifts, 4>>(stream, args, plan);
  }
}

template <typename T>
void launch_of_type(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan) {
  const GroupTiles layout = group_tiles(args.weight.format, args.n, args.k);
  const auto launch_kind =
      layout.four_bits
          ? (layout.has_shifts ? launch_of_groups<T, true, true> : launch_of_groups<T, true, false>)
          : (layout.has_shifts ? launch_of_groups<T, false, true>
                               : launch_of_groups<T, false, false>);
  launch_kind(stream, args, plan, layout.groups);
}

}  // namespace

bool gated_group_linear_takes(const CudaLinear& args) {
  return args.n / 2 % kTileOutputs == 0;
}

void group_linear(CudaStream& stream, const CudaLinear& args, const GroupPlan& plan) {
  if (args.dtype == DType::kFloat16) {
    launch_of_type<__half>(stream, args, plan);
  } else {
    launch_of_type<__nv_bfloat16>(stream, args, plan);
  }
}

}  // namespace quire::ops::cuda
