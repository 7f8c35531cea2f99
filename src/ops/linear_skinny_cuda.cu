// A block multiplies a tile of weights, fetched by tensor copies through a ring of stages, with a
// tile of activations; the blocks of a cluster share a tile of outputs, each a part of k, and add
// their sums up through each other's shared memory. Weights take the 64 rows of wgmma and
// activations its 8 to 128 columns, so that few rows waste little.
//
// A block asks for as many weights as its stages hold before it waits for the kernel before it.
#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "core/launch.cuh"
#include "ops/linear_cuda.cuh"
#include "ops/linear_sm90.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kDepth = 64;         // of k, in a stage
constexpr int kGroupColumns = 64;  // outputs of a row that one warpgroup has
constexpr int kGroupThreads = 128;
constexpr int kProducerThreads = 32;
constexpr int kTileAlignment = 1024;
constexpr int kBytesOfDepth = kDepth * 2;
constexpr int kMaxStages = 16;
constexpr int kBarrierBytes = 2 * kMaxStages * 8;

// The rows of sums in shared memory are that much longer: then a warp's stores meet 32 banks.
constexpr int kSumsPadding = 4;

struct SkinnyArgs {
  const float* bias;
  void* out;
  int64_t out_stride;
  int rows;
  int n;
  int num_blocks;  // of kDepth
  int num_stages;
  bool float_out;
  bool silu_and_mul;
};

constexpr int stage_bytes(int tile_columns, int tile_rows) {
  return (tile_columns + tile_rows) * kBytesOfDepth;
}

constexpr int sums_bytes(int tile_columns, int tile_rows) {
  return (tile_columns + kSumsPadding) * tile_rows * 4;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

// The float4 at this address of all blocks of the cluster, added up in their order.
__device__ __forceinline__ float4 sum_over_cluster(uint32_t address) {
  constexpr int kMaxSplits = 8;
  float4 parts[kMaxSplits];
#pragma unroll
  for (int i = 0; i < kMaxSplits; ++i) {
    if (i < gridDim.x) parts[i] = load_from_cluster(address, i);
  }
  float4 sum = parts[0];
#pragma unroll
  for (int i = 1; i < kMaxSplits; ++i) {
    if (i < gridDim.x) sum = sum + parts[i];
  }
  return sum;
}

// Adds the bias of outputs [column, column + 4).
__device__ __forceinline__ float4 with_bias(const SkinnyArgs& args, float4 sum, int column) {
  if (args.bias == nullptr) return sum;
  const auto bias = [&](int i) { return column + i < args.n ? args.bias[column + i] : 0.0f; };
  return sum + float4{bias(0), bias(1), bias(2), bias(3)};
}

__device__ __forceinline__ float silu(float x) {
  return x / (1.0f + __expf(-x));
}

// Outputs [column, column + 4) of a row that has `columns`.
template <typename T>
__device__ __forceinline__ void store_outputs(T* row, int column, int columns, float4 values) {
  struct alignas(4 * sizeof(T)) Vector {
    T elements[4];
  };
  const Vector vector = {static_cast<T>(values.x), static_cast<T>(values.y),
                         static_cast<T>(values.z), static_cast<T>(values.w)};
  if (column + 4 <= columns) {
    *reinterpret_cast<Vector*>(row + column) = vector;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < columns) row[column + i] = vector.elements[i];
  }
}

// This block's share of the tile's outputs, from the sums of all blocks of the cluster:
// sums[tile_rows][tile columns + kSumsPadding].
template <typename T, int kTileColumns, int kTileRows, bool kSilu>
__device__ void finish_tile(const SkinnyArgs& args, uint32_t sums, int first_row) {
  constexpr int kThreads = kTileColumns / kGroupColumns * kGroupThreads;
  constexpr int kOutputs = kSilu ? kTileColumns / 2 : kTileColumns;
  constexpr int kVectors = kOutputs / 4;
  const int columns = kSilu ? args.n / 2 : args.n;
  const int total = min(kTileRows, args.rows - first_row) * kVectors;
  const int share = (total + gridDim.x - 1) / gridDim.x;
  const int end = min(total, static_cast<int>(blockIdx.x + 1) * share);
  for (int i = blockIdx.x * share + threadIdx.x; i < end; i += kThreads) {
    const int row = i / kVectors;
    const int in_tile = i % kVectors * 4;
    const int column = blockIdx.z * kOutputs + in_tile;
    const uint32_t address = sums + (row * (kTileColumns + kSumsPadding) + in_tile) * 4;
    float4 value = with_bias(args, sum_over_cluster(address), column);
    if constexpr (kSilu) {
      const float4 up = with_bias(args, sum_over_cluster(address + kOutputs * 4), columns + column);
      value = {silu(value.x) * up.x, silu(value.y) * up.y, silu(value.z) * up.z,
               silu(value.w) * up.w};
    }
    const int64_t offset = (first_row + row) * args.out_stride;
    if (args.float_out) {
      store_outputs(static_cast<float*>(args.out) + offset, column, columns, value);
    } else {
      store_outputs(static_cast<T*>(args.out) + offset, column, columns, value);
    }
  }
}

// The stages: tiles of weights, then of activations, then two barriers a stage.
template <int kTileColumns, int kTileRows>
struct Ring {
  static constexpr int kWeightBytes = kTileColumns * kBytesOfDepth;
  static constexpr int kStageBytes = stage_bytes(kTileColumns, kTileRows);

  uint32_t memory;
  uint32_t barriers;
  int num_stages;

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t in(int stage) const { return weights(stage) + kWeightBytes; }
  __device__ uint32_t filled(int stage) const { return barriers + 16 * stage; }
  __device__ uint32_t emptied(int stage) const { return barriers + 16 * stage + 8; }
};

// Fetches blocks [first, end) of k.
template <int kTileColumns, int kTileRows>
struct Producer {
  Ring<kTileColumns, kTileRows> ring;
  const CUtensorMap* weight_map;
  const CUtensorMap* in_map;
  int first_block;
  int end_block;
  int first_column;  // of weights: two parts of half a tile each
  int second_column;
  int first_row;

  __device__ void fetch_weights(int block, int stage) const {
    barrier_expect(ring.filled(stage), ring.kStageBytes);
    copy_box(ring.weights(stage), weight_map, block * kDepth, first_column, ring.filled(stage));
    copy_box(ring.weights(stage) + ring.kWeightBytes / 2, weight_map, block * kDepth, second_column,
             ring.filled(stage));
  }
  __device__ void fetch_in(int block, int stage) const {
    copy_box(ring.in(stage), in_map, block * kDepth, first_row, ring.filled(stage));
  }
  __device__ int num_early() const { return min(ring.num_stages, end_block - first_block); }
  __device__ void fetch_early_weights() const {
    for (int i = 0; i < num_early(); ++i) fetch_weights(first_block + i, i);
  }
  // After the kernel before is done.
  __device__ void fetch_rest() const {
    for (int i = 0; i < num_early(); ++i) fetch_in(first_block + i, i);
    int stage = 0;
    uint32_t parity = 0;
    for (int block = first_block + num_early(); block < end_block; ++block) {
      barrier_wait(ring.emptied(stage), parity);
      fetch_weights(block, stage);
      fetch_in(block, stage);
      if (++stage == ring.num_stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
};

// Multiplies what is fetched, and leaves the tile's sums at `sums`.
template <typename T, int kTileColumns, int kTileRows>
__device__ void consume(const Ring<kTileColumns, kTileRows>& ring, int num_blocks, float* sums) {
  constexpr int kInstructionRows = kTileRows < 128 ? kTileRows : 128;
  constexpr int kParts = kTileRows / kInstructionRows;
  const int group = threadIdx.x / kGroupThreads;
  const int lane = threadIdx.x % 32;
  float d[kParts][kInstructionRows / 2] = {};
  int stage = 0;
  int last_stage = 0;
  uint32_t parity = 0;
  for (int block = 0; block < num_blocks; ++block) {
    barrier_wait(ring.filled(stage), parity);
    const uint64_t a = tile_descriptor(ring.weights(stage) + group * kGroupColumns * kBytesOfDepth);
    const uint64_t b = tile_descriptor(ring.in(stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const uint64_t part_offset = part * kInstructionRows * kBytesOfDepth >> 4;
        wgmma<T, kInstructionRows>(d[part], a + step * kDescriptorStep,
                                   b + part_offset + step * kDescriptorStep);
      }
    }
    wgmma_commit();
    // The products before these are done.
    wgmma_wait<1>();
    if (block > 0 && lane == 0) barrier_arrive(ring.emptied(last_stage));
    last_stage = stage;
    if (++stage == ring.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wgmma_wait<0>();
  // The sums take the stages' place.
  constexpr int kThreads = kTileColumns / kGroupColumns * kGroupThreads;
  asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  const int column = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kInstructionRows / 2; ++i) {
      const int row = part * kInstructionRows + i / 4 * 8 + 2 * (lane % 4) + i % 2;
      sums[row * (kTileColumns + kSumsPadding) + column + i / 2 % 2 * 8] = d[part][i];
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

// Grid: parts of k (a cluster), tiles of rows, tiles of columns.
template <typename T, int kGroups, int kTileRows>
__global__ __launch_bounds__(kGroups* kGroupThreads + kProducerThreads) void skinny_linear_kernel(
    const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap in_map,
    const __grid_constant__ SkinnyArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kTileColumns = kGroups * kGroupColumns;
  extern __shared__ char shared[];
  const uint32_t barriers = shared_address(shared);
  const uint32_t memory =
      (barriers + kBarrierBytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  auto* sums = reinterpret_cast<float*>(shared + (memory - barriers));
  const Ring<kTileColumns, kTileRows> ring = {memory, barriers, args.num_stages};

  const int parts = gridDim.x;
  const int first_block = args.num_blocks * blockIdx.x / parts;
  const int end_block = args.num_blocks * (blockIdx.x + 1) / parts;
  const int first_row = blockIdx.y * kTileRows;
  const int first_column = blockIdx.z * (args.silu_and_mul ? kTileColumns / 2 : kTileColumns);
  const int second_column = first_column + (args.silu_and_mul ? args.n / 2 : kTileColumns / 2);
  const Producer<kTileColumns, kTileRows> producer = {
      ring, &weight_map, &in_map, first_block, end_block, first_column, second_column, first_row};
  const bool is_producer = threadIdx.x == kGroups * kGroupThreads;
  if (is_producer) {
    for (int i = 0; i < args.num_stages; ++i) {
      barrier_init(ring.filled(i), 1);
      barrier_init(ring.emptied(i), kGroups * kGroupThreads / 32);
    }
    fence_barrier_init();
    producer.fetch_early_weights();
    prefetch_map(&in_map);
  }
  release_next();
  __syncthreads();
  if (is_producer) {
    wait_for_previous();
    producer.fetch_rest();
  }
  if (threadIdx.x < kGroups * kGroupThreads) {
    consume<T>(ring, end_block - first_block, sums);
  }
  __syncwarp();
  cluster_barrier();
  if (threadIdx.x < kGroups * kGroupThreads) {
    if (args.silu_and_mul) {
      finish_tile<T, kTileColumns, kTileRows, true>(args, memory, first_row);
    } else {
      finish_tile<T, kTileColumns, kTileRows, false>(args, memory, first_row);
    }
  }
  __syncwarp();
  // Others may still read this block's sums.
  cluster_barrier();
#endif
}

// Of a row-major matrix of 16-bit elements, in boxes of box_rows rows and kDepth columns.
CUtensorMap tensor_map(CudaStream& stream, DType dtype, const void* matrix, int64_t rows,
                       int64_t columns, int64_t stride, int box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {kDepth, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult status = stream.encode_tensor_map()(
      &map,
      dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      2, const_cast<void*>(matrix), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, "a matrix that skinny_linear takes has a tensor map");
  return map;
}

template <typename T, int kGroups, int kTileRows>
void launch_skinny(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
  constexpr int kTileColumns = kGroups * kGroupColumns;
  const auto kernel = skinny_linear_kernel<T, kGroups, kTileRows>;
  const int shared_bytes = kBarrierBytes + kTileAlignment +
                           std::max(plan.num_stages * stage_bytes(kTileColumns, kTileRows),
                                    sums_bytes(kTileColumns, kTileRows));
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
      "sizing a kernel's shared memory");
  const CUtensorMap weight_map =
      tensor_map(stream, args.dtype, args.weight, args.n, args.k, args.k, kTileColumns / 2);
  const CUtensorMap in_map =
      tensor_map(stream, args.dtype, args.in, args.rows, args.k, args.in_stride, kTileRows);
  const SkinnyArgs kernel_args = {args.bias,
                                  args.out,
                                  args.out_stride,
                                  static_cast<int>(args.rows),
                                  static_cast<int>(args.n),
                                  static_cast<int>((args.k + kDepth - 1) / kDepth),
                                  plan.num_stages,
                                  args.out_dtype == DType::kFloat32,
                                  args.silu_and_mul};
  const auto splits = static_cast<unsigned>(plan.splits);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(splits, static_cast<unsigned>((args.rows + kTileRows - 1) / kTileRows),
                        static_cast<unsigned>((args.n + kTileColumns - 1) / kTileColumns));
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

template <typename T>
void launch_of_type(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
  switch (plan.tile_rows) {
    case 8:
      return launch_skinny<T, 1, 8>(stream, args, plan);
    case 16:
      return launch_skinny<T, 1, 16>(stream, args, plan);
    case 32:
      return launch_skinny<T, 1, 32>(stream, args, plan);
    case 64:
      return launch_skinny<T, 2, 64>(stream, args, plan);
    case 128:
      return launch_skinny<T, 2, 128>(stream, args, plan);
    default:
      check(plan.tile_rows == 256, "a plan's tile has a kernel");
      return launch_skinny<T, 2, 256>(stream, args, plan);
  }
}

}  // namespace

SkinnyPlan skinny_plan(const CudaLinear& args) {
  SkinnyPlan plan = {256, 1, 1};
  for (const int rows : {128, 64, 32, 16, 8}) {
    if (args.rows <= rows) plan.tile_rows = rows;
  }
  if (args.rows > 128) plan.tile_rows = 128;
  const int tile_columns = plan.tile_rows <= 32 ? kGroupColumns : 2 * kGroupColumns;
  const int64_t tiles = (args.n + tile_columns - 1) / tile_columns *
                        ((args.rows + plan.tile_rows - 1) / plan.tile_rows);
  const int64_t num_blocks = (args.k + kDepth - 1) / kDepth;
  // Enough blocks to keep a large device's memory busy, but none so small that adding up its sums
  // takes longer than they did.
  constexpr int64_t kMostBlocks = 160;
  constexpr int kMaxSplits = 8;
  constexpr int kFewestDepths = 3;
  while (plan.splits < kMaxSplits && 2 * plan.splits * tiles <= kMostBlocks &&
         num_blocks >= 2 * plan.splits * kFewestDepths) {
    plan.splits *= 2;
  }
  // Two or more blocks a multiprocessor, so that one fetches while the other adds up, and a kernel
  // while the one before it drains.
  constexpr int64_t kStageBudget = 104 * 1024;
  const int64_t most_stages =
      std::max<int64_t>(kStageBudget / stage_bytes(tile_columns, plan.tile_rows), 3);
  plan.num_stages = static_cast<int>(
      std::min({int64_t{8}, most_stages, (num_blocks + plan.splits - 1) / plan.splits}));
  return plan;
}

bool skinny_linear_takes(CudaStream& stream, const CudaLinear& args) {
  constexpr int64_t kMostRows = 64;
  constexpr int64_t kMostTiles = 65535;
  return stream.compute_capability() == 90 && args.dtype != DType::kFloat32 && args.k % 8 == 0 &&
         args.k <= INT32_MAX && args.rows <= kMostRows && args.n <= kMostTiles * kGroupColumns / 2;
}

void skinny_linear(CudaStream& stream, const CudaLinear& args, const SkinnyPlan& plan) {
  if (args.dtype == DType::kFloat16) {
    launch_of_type<__half>(stream, args, plan);
  } else {
    launch_of_type<__nv_bfloat16>(stream, args, plan);
  }
}

}  // namespace quire::ops::cuda
