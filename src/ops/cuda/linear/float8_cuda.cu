// A block multiplies a tile of weights, fetched by tensor copies through a ring of stages, with a
// tile of rounded activations, as skinny_linear does. The tensor cores add float8 products up with
// few bits, so a stage of 128 inputs has an accumulator of its own, which is added to sums in
// float32; there the scales of blocks are multiplied in. Scales of whole rows and outputs wait for
// the end.
//
// A block asks for as many weights as its stages hold before it waits for the kernel before it.
// Activations come after that, from the L2 cache, and have a few stages of their own.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/linear/float8.cuh"
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

struct Float8Args {
  SkinnyArgs tile;
  const float* in_scales;
  int64_t in_scale_stride;
  const float* weight_scales;
  int weight_scale_stride;  // of blocks
};

// Shared memory: stages of weights, stages of activations, sums, scales, barriers. Scales of blocks
// are those of a tile's rows for each stage of activations; else they are those of the tile's
// columns, then of its rows.
template <bool kBlocks, int kTileColumns, int kTileRows>
struct Float8Memory {
  static constexpr int kWeightBytes = kTileColumns * kFloat8Block;
  static constexpr int kInBytes = kTileRows * kFloat8Block;
  static constexpr int kScaleBytes = kBlocks ? 4 * kTileRows : 0;  // of a stage
  static constexpr int kScalesBytes =
      kBlocks ? kMostInStages * kScaleBytes : 4 * (kTileColumns + kTileRows);
  static constexpr int kBarriers = 2 + kMaxStages + 2 * kMostInStages;

  uint32_t start;
  int num_stages;
  int num_in_stages;

  __host__ __device__ static constexpr int bytes(int num_stages, int num_in_stages) {
    return kTileAlignment + num_stages * kWeightBytes + num_in_stages * kInBytes +
           sums_bytes(kTileColumns, kTileRows) + kScalesBytes + 8 * kBarriers;
  }
  __device__ uint32_t weights(int stage) const { return start + stage * kWeightBytes; }
  __device__ uint32_t in(int stage) const { return weights(num_stages) + stage * kInBytes; }
  __device__ uint32_t sums() const { return in(num_in_stages); }
  __device__ uint32_t scales(int stage = 0) const {
    return sums() + sums_bytes(kTileColumns, kTileRows) + stage * kScaleBytes;
  }
  __device__ uint32_t exchange_barrier() const { return scales() + kScalesBytes; }
  __device__ uint32_t weights_filled(int stage) const {
    return exchange_barrier() + 16 + 8 * stage;
  }
  __device__ uint32_t in_filled(int stage) const { return weights_filled(kMaxStages + stage); }
  // Both the stage of activations and the weights that they were multiplied with.
  __device__ uint32_t emptied(int stage) const { return in_filled(kMostInStages + stage); }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Fetches blocks [first, end) of k.
template <bool kBlocks, int kTileColumns, int kTileRows>
struct Float8Producer {
  using Memory = Float8Memory<kBlocks, kTileColumns, kTileRows>;
  Memory memory;
  const CUtensorMap* weight_map;
  const CUtensorMap* in_map;
  const Float8Args* args;
  int first_block;
  int end_block;
  int first_column;  // of weights: two parts of half a tile each
  int second_column;
  int first_row;

  __device__ void fetch_weights(int block, int stage) const {
    const uint32_t to = memory.weights(stage);
    const uint32_t filled = memory.weights_filled(stage);
    barrier_arrive_expecting(filled, Memory::kWeightBytes);
    copy_box(to, *weight_map, block * kFloat8Block, first_column, filled);
    copy_box(to + Memory::kWeightBytes / 2, *weight_map, block * kFloat8Block, second_column,
             filled);
  }
  __device__ void fetch_in(int block, int stage) const {
    const uint32_t filled = memory.in_filled(stage);
    barrier_arrive_expecting(filled, Memory::kInBytes + Memory::kScaleBytes);
    copy_box(memory.in(stage), *in_map, block * kFloat8Block, first_row, filled);
    if constexpr (kBlocks) {
      copy_bulk(memory.scales(stage), args->in_scales + block * args->in_scale_stride + first_row,
                Memory::kScaleBytes, filled);
    }
  }
  __device__ int num_blocks() const { return end_block - first_block; }
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

// The scales of a thread's two columns of weights.
template <bool kBlocks>
struct WeightScales {
  const float* low = nullptr;
  const float* high = nullptr;

  // Column m of the tile is `column` of the weight.
  __device__ WeightScales(const Float8Args& args, int column) {
    if constexpr (kBlocks) {
      const auto row_of = [&](int c) {
        return args.weight_scales +
               int64_t{min(c, args.tile.n - 1) / kFloat8Block} * args.weight_scale_stride;
      };
      low = row_of(column);
      high = row_of(column + 8);
    }
  }
};

// sums += products of a stage, scaled.
template <bool kBlocks, int kTileRows>
__device__ __forceinline__ void add_stage(const float (&products)[kTileRows / 2], uint32_t scales,
                                          float low, float high, float (&sums)[kTileRows / 2]) {
#pragma unroll
  for (int octet = 0; octet < kTileRows / 8; ++octet) {
    const float* d = &products[4 * octet];
    float* sum = &sums[4 * octet];
    if constexpr (kBlocks) {
      const uint2 pair = load_pair(scales + 4 * (8 * octet + 2 * (threadIdx.x % 4)));
      const float even = __uint_as_float(pair.x);
      const float odd = __uint_as_float(pair.y);
      sum[0] += d[0] * (low * even);
      sum[1] += d[1] * (low * odd);
      sum[2] += d[2] * (high * even);
      sum[3] += d[3] * (high * odd);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[i] += d[i];
    }
  }
}

// Multiplies what is fetched.
template <bool kBlocks, int kTileColumns, int kTileRows>
__device__ void multiply_stages(const Float8Producer<kBlocks, kTileColumns, kTileRows>& work,
                                const WeightScales<kBlocks>& weight_scales,
                                float (&sums)[kTileRows / 2]) {
  const auto& memory = work.memory;
  const int group = threadIdx.x / kGroupThreads;
  StageCursor weights;
  StageCursor in;
  float products[kTileRows / 2] = {};
  for (int block = work.first_block; block < work.end_block; ++block) {
    float low = 1;
    float high = 1;
    if constexpr (kBlocks) {
      low = __ldg(weight_scales.low + block);
      high = __ldg(weight_scales.high + block);
    }
    wait_for_stage(memory.weights_filled(weights.stage), weights.parity);
    wait_for_stage(memory.in_filled(in.stage), in.parity);
    const uint64_t a =
        tile_descriptor(memory.weights(weights.stage) + group * kGroupColumns * kFloat8Block);
    const uint64_t b = tile_descriptor(memory.in(in.stage));
    pin(products);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kFloat8Block / 32; ++step) {
      wgmma_float8<kTileRows>(products, a + step * kDescriptorStep, b + step * kDescriptorStep,
                              step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(products);
    add_stage<kBlocks, kTileRows>(products, memory.scales(in.stage), low, high, sums);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(memory.emptied(in.stage));
    weights.advance(memory.num_stages);
    in.advance(memory.num_in_stages);
  }
}

// Scales of the tile's columns and rows, in shared memory.
template <int kTileColumns>
struct TileScales {
  uint32_t memory;

  __device__ void apply(int column, int row, float (&quad)[4]) const {
    const uint2 rows = load_pair(memory + 4 * (kTileColumns + row));
    const float even = __uint_as_float(rows.x);
    const float odd = __uint_as_float(rows.y);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float scale = load_float(memory + 4 * (column + 8 * half));
      quad[2 * half] *= scale * even;
      quad[2 * half + 1] *= scale * odd;
    }
  }
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: parts of k (a cluster), tiles of rows, tiles of columns.
template <bool kBlocks, int kGroups, int kTileRows>
__global__ __launch_bounds__(
    kGroups* kGroupThreads + kProducerThreads,
    1) void float8_linear_kernel(const __grid_constant__ CUtensorMap weight_map,
                                 const __grid_constant__ CUtensorMap in_map,
                                 const __grid_constant__ Float8Args args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTileColumns = kGroups * kGroupColumns;
  constexpr int kThreads = kGroups * kGroupThreads;
  extern __shared__ char shared[];
  const SkinnyArgs& tile = args.tile;
  const uint32_t start = shared_address(shared);
  const Float8Memory<kBlocks, kTileColumns, kTileRows> memory = {
      (start + kTileAlignment - 1) / kTileAlignment * kTileAlignment, tile.num_stages,
      min(tile.num_stages, kMostInStages)};
  const Exchange<kTileColumns, kTileRows> exchange = {memory.sums(), memory.exchange_barrier(),
                                                      tile.log2_splits, 0};

  const int part = blockIdx.x;
  const int first_block = tile.num_blocks * part >> tile.log2_splits;
  const int end_block = tile.num_blocks * (part + 1) >> tile.log2_splits;
  const int first_row = blockIdx.y * kTileRows;
  const int first_column = blockIdx.z * (tile.silu_and_mul ? kTileColumns / 2 : kTileColumns);
  const int second_column = first_column + (tile.silu_and_mul ? tile.n / 2 : kTileColumns / 2);
  const Float8Producer<kBlocks, kTileColumns, kTileRows> producer = {
      memory,    &weight_map,  &in_map,       &args,    first_block,
      end_block, first_column, second_column, first_row};
  const bool is_producer = threadIdx.x == kThreads;
  if (is_producer) {
    for (int i = 0; i < memory.num_stages; ++i) barrier_init(memory.weights_filled(i), 1);
    for (int i = 0; i < memory.num_in_stages; ++i) {
      barrier_init(memory.in_filled(i), 1);
      barrier_init(memory.emptied(i), kThreads / 32);
    }
    exchange.expect();
    fence_barrier_init();
    fence_async_proxy_everywhere();
    producer.fetch_early_weights();
    prefetch_map(in_map);
  }
  release_next();
  __syncthreads();
  if (gridDim.x > 1) synchronize_cluster();
  if (is_producer) {
    wait_for_previous();
    producer.fetch_rest();
  }
  if (threadIdx.x >= kThreads) return;

  const int m = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const WeightScales<kBlocks> weight_scales(
      args, m < kTileColumns / 2 ? first_column + m : second_column + m - kTileColumns / 2);
  float column_scale = 0;
  float row_scale = 0;
  if constexpr (!kBlocks) {
    static_assert(kTileColumns <= kThreads && kTileRows <= kThreads);
    const int i = threadIdx.x;
    const int column =
        i < kTileColumns / 2 ? first_column + i : second_column + i - kTileColumns / 2;
    if (i < kTileColumns && column < tile.n) column_scale = __ldg(args.weight_scales + column);
    wait_for_previous();
    if (i < kTileRows && first_row + i < tile.rows) row_scale = args.in_scales[first_row + i];
  }
  float sums[kTileRows / 2] = {};
  multiply_stages<kBlocks, kTileColumns, kTileRows>(producer, weight_scales, sums);
  if constexpr (!kBlocks) {
    if (threadIdx.x < kTileColumns) {
      store_word(memory.scales() + 4 * threadIdx.x, __float_as_uint(column_scale));
    }
    if (threadIdx.x < kTileRows) {
      store_word(memory.scales() + 4 * (kTileColumns + threadIdx.x), __float_as_uint(row_scale));
    }
    named_barrier_wait(1, kThreads);
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
  using Scales = std::conditional_t<kBlocks, Unscaled, TileScales<kTileColumns>>;
  Scales tile_scales;
  if constexpr (!kBlocks) tile_scales.memory = memory.scales();
  if (tile.silu_and_mul) {
    finish_tile<void, true>(tile, exchange, tile_scales);
  } else {
    finish_tile<void, false>(tile, exchange, tile_scales);
  }
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

template <bool kBlocks, int kGroups, int kTileRows>
void launch_float8(CudaStream& stream, const CudaLinear& args, const Float8Activations& activations,
                   const Float8Plan& plan) {
  constexpr int kTileColumns = kGroups * kGroupColumns;
  const auto kernel = float8_linear_kernel<kBlocks, kGroups, kTileRows>;
  const int shared_bytes = Float8Memory<kBlocks, kTileColumns, kTileRows>::bytes(
      plan.num_stages, std::min(plan.num_stages, kMostInStages));
  check(shared_bytes <= static_cast<int>(stream.max_shared_bytes()),
        "a plan's stages fit the shared memory");
  allow_shared_memory(stream, kernel);
  const CUtensorMap weight_map =
      matrix_tensor_map(stream, CU_TENSOR_MAP_DATA_TYPE_UINT8, args.weight.data, args.n, args.k,
                        args.k, kTileColumns / 2);
  const CUtensorMap in_map =
      matrix_tensor_map(stream, CU_TENSOR_MAP_DATA_TYPE_UINT8, activations.data, args.rows, args.k,
                        args.k, kTileRows);
  const auto num_blocks = static_cast<int>(args.k / kFloat8Block);
  const Float8Args kernel_args = {
      {.bias = args.bias,
       .out = args.out,
       .out_stride = args.out_stride,
       .rows = static_cast<int>(args.rows),
       .n = static_cast<int>(args.n),
       .num_blocks = num_blocks,
       .num_stages = plan.num_stages,
       .log2_splits = std::countr_zero(static_cast<unsigned>(plan.splits)),
       .cluster_rows = 1,
       .cluster_columns = 1,
       .float_out = args.out_dtype == DType::kFloat32,
       .silu_and_mul = args.silu_and_mul,
       .half_out = args.dtype == DType::kFloat16},
      activations.scales,
      activations.scale_stride,
      args.weight.scales,
      num_blocks};
  const auto splits = static_cast<unsigned>(plan.splits);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(splits, static_cast<unsigned>(ceil_div(args.rows, kTileRows)),
                        static_cast<unsigned>(ceil_div(args.n, kTileColumns)));
  config.blockDim = dim3(kGroups * kGroupThreads + kProducerThreads);
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
  check_cuda(cudaLaunchKernelEx(&config, kernel, weight_map, in_map, kernel_args),
             "launching a kernel");
}

template <bool kBlocks>
void launch_of_kind(CudaStream& stream, const CudaLinear& args,
                    const Float8Activations& activations, const Float8Plan& plan) {
  const bool is_wide = plan.tile_columns == 2 * kGroupColumns;
  switch (plan.tile_rows) {
    case 8:
      return launch_float8<kBlocks, 1, 8>(stream, args, activations, plan);
    case 16:
      return launch_float8<kBlocks, 1, 16>(stream, args, activations, plan);
    case 32:
      return launch_float8<kBlocks, 1, 32>(stream, args, activations, plan);
    default:
      check(plan.tile_rows == 64, "a plan's tile has a kernel");
      return is_wide ? launch_float8<kBlocks, 2, 64>(stream, args, activations, plan)
                     : launch_float8<kBlocks, 1, 64>(stream, args, activations, plan);
  }
}

}  // namespace

void float8_linear(CudaStream& stream, const CudaLinear& args, const Float8Activations& activations,
                   const Float8Plan& plan) {
  if (has_blocks(args)) {
    launch_of_kind<true>(stream, args, activations, plan);
  } else {
    launch_of_kind<false>(stream, args, activations, plan);
  }
}

}  // namespace quire::ops::cuda
