#pragma once
// A block multiplies a tile of weights, fetched by tensor copies through a ring of stages, with a
// tile of activations; the blocks of a cluster share a tile of outputs, each a part of k, and add
// their sums up through each other's shared memory. Weights take the 64 rows of wgmma and
// activations its 8 to 64 columns, so that few rows waste little.
//
// A block asks for as many weights as its stages hold before it waits for the kernel before it.
//
// More products may be added to the sums (an Addition, ops/cuda/lora/product.cuh): their inputs go
// through the stages behind the weights.
#include <bit>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/linear/linear.cuh"
#include "ops/cuda/linear/skinny.cuh"
#include "ops/cuda/linear/stages.cuh"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/tma.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"
#include "ops/cuda/tensor_map_cuda.h"

namespace quire::ops::cuda {

// Where a block has its sums: behind the stages, or, with wide tiles, in the stages' own memory
// once all blocks of the cluster have multiplied what was in it. That leaves room for a third
// block.
template <int kTileColumns>
inline constexpr bool kSumsInStages = kTileColumns > kGroupColumns;

template <int kGroups>
inline constexpr int kSkinnyThreads = kGroups* kGroupThreads + kProducerThreads;
template <int kGroups>
inline constexpr int kSkinnyLeastBlocks =
    kGroups > 1 ? 3 : 1;  // that a multiprocessor has registers for

template <int kTileColumns, int kTileRows>
__host__ __device__ constexpr int skinny_ring_bytes(int num_stages) {
  const int stages = num_stages * stage_bytes(kTileColumns, kTileRows);
  const int sums = sums_bytes(kTileColumns, kTileRows);
  if (!kSumsInStages<kTileColumns>) return stages + sums;
  return stages > sums ? stages : sums;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The stages: tiles of weights, then of activations, then two barriers a stage.
template <int kTileColumns, int kTileRows>
struct Ring {
  static constexpr int kRows = kTileRows;
  static constexpr int kWeightBytes = kTileColumns * kBytesOfDepth;
  static constexpr int kBarrierStep = 16;
  static constexpr int kStageBytes = stage_bytes(kTileColumns, kTileRows);

  uint32_t memory;
  uint32_t barriers;
  int num_stages;

  __device__ uint32_t weights(int stage) const { return memory + stage * kStageBytes; }
  __device__ uint32_t in(int stage) const { return weights(stage) + kWeightBytes; }
  __device__ uint32_t filled(int stage) const { return barriers + kBarrierStep * stage; }
  __device__ uint32_t emptied(int stage) const { return filled(stage) + 8; }
};

// Fetches blocks [first, end) of k, for this block and for those that have tiles in common with it.
template <int kTileColumns, int kTileRows>
struct Producer {
  Ring<kTileColumns, kTileRows> ring;
  Place place;
  const CUtensorMap* weight_map;
  const CUtensorMap* in_map;
  int first_block;
  int end_block;
  int first_column;  // of weights: two parts of half a tile each
  int second_column;
  int first_row;

  __device__ void fetch_weights(int block, int stage) const {
    barrier_arrive_expecting(ring.filled(stage), ring.kStageBytes);
    const uint32_t second_part = ring.kWeightBytes / 2;
    if (place.rows > 1) {
      const bool second = place.row() != 0;
      copy_box_to_cluster(ring.weights(stage) + (second ? second_part : 0), *weight_map,
                          block * kDepth, second ? second_column : first_column, ring.filled(stage),
                          place.weight_ranks());
      return;
    }
    copy_box(ring.weights(stage), *weight_map, block * kDepth, first_column, ring.filled(stage));
    copy_box(ring.weights(stage) + second_part, *weight_map, block * kDepth, second_column,
             ring.filled(stage));
  }
  __device__ void fetch_in(int block, int stage) const {
    if (place.columns > 1) {
      const int row = kTileRows / 2 * place.column();
      copy_box_to_cluster(ring.in(stage) + row * kBytesOfDepth, *in_map, block * kDepth,
                          first_row + row, ring.filled(stage), place.in_ranks());
      return;
    }
    copy_box(ring.in(stage), *in_map, block * kDepth, first_row, ring.filled(stage));
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
      wait_for_stage(ring.emptied(stage), parity);
      fetch_weights(block, stage);
      fetch_in(block, stage);
      if (++stage == ring.num_stages) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
};

// Those that fill this block's stages hear from each warp that it has done with one, through a lane
// each. For such a lane, where the barrier is; else 0.
__device__ __forceinline__ uint32_t barrier_to_release(uint32_t barrier, const Place& place) {
  const int lane = threadIdx.x % 32;
  if (lane < place.rows) return address_in_cluster(barrier, place.rank_in_row(lane));
  const int column = lane - place.rows;
  if (column >= place.columns || column == place.column()) return 0;
  return address_in_cluster(barrier, place.rank_in_column(column));
}

// A product to which nothing is added. What an Addition does, in the order of calls:
struct NoAddition {
  static constexpr bool kAny = false;
  // Finds out what there is to add to the block's outputs; by the threads that multiply. `note`: a
  // word of shared memory.
  template <int kTileColumns>
  __device__ void look_up(const SkinnyArgs&, int /*first_column*/, uint32_t /*note*/) {}
  // Until the activations are there; by the thread that fetches them.
  __device__ void wait_for_inputs() const { wait_for_previous(); }
  // Stages that it fills behind those of the product.
  __device__ int num_fillings() const { return 0; }
  // Fills them; by the producer's warp.
  template <typename Ring>
  __device__ void fetch(const Ring&, int /*first_column*/, int /*num_blocks*/,
                        uint32_t /*note*/) const {}
};

// Multiplies what is fetched, adds what `addition` has, and sends the sums to their owners.
template <typename T, int kTileColumns, int kTileRows, typename Addition>
__device__ void consume(const Ring<kTileColumns, kTileRows>& ring, const Place& place,
                        int num_blocks, const Exchange<kTileColumns, kTileRows>& exchange,
                        const Addition& addition) {
  const int group = threadIdx.x / kGroupThreads;
  const uint32_t release = barrier_to_release(ring.emptied(0), place);
  const int num_fillings = num_blocks + addition.num_fillings();
  // Else the compiler has products wait for each other.
  __builtin_assume(num_blocks > 0);
  float d[kTileRows / 2] = {};
  int stage = 0;
  int last_stage = 0;
  uint32_t parity = 0;
  for (int block = 0; block < num_blocks; ++block) {
    wait_for_stage(ring.filled(stage), parity);
    const uint64_t a = tile_descriptor(ring.weights(stage) + group * kGroupColumns * kBytesOfDepth);
    const uint64_t b = tile_descriptor(ring.in(stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      wgmma<T, kTileRows>(d, a + step * kDescriptorStep, b + step * kDescriptorStep, 1);
    }
    wgmma_commit();
    // The products before these are done.
    wgmma_wait<1>();
    if (block > 0 && block - 1 + ring.num_stages < num_fillings && release != 0) {
      barrier_arrive_in_cluster(release + ring.kBarrierStep * last_stage);
    }
    last_stage = stage;
    if (++stage == ring.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  wgmma_wait<0>();
  if constexpr (Addition::kAny) {
    pin(d);
    if (num_blocks - 1 + ring.num_stages < num_fillings && release != 0) {
      barrier_arrive_in_cluster(release + ring.kBarrierStep * last_stage);
    }
    addition.multiply(d, ring, release, num_blocks, {stage, parity});
  }
  if constexpr (kSumsInStages<kTileColumns>) {
    if (exchange.is_alone()) {
      named_barrier_wait(1, kTileColumns / kGroupColumns * kGroupThreads);
    } else {
      synchronize_cluster();
    }
  }
#pragma unroll
  for (int octet = 0; octet < kTileRows / 8; ++octet) {
    const float quad[4] = {d[4 * octet], d[4 * octet + 1], d[4 * octet + 2], d[4 * octet + 3]};
    exchange.send(octet, quad);
  }
  exchange.finish_sending();
}

// What a thread of the kernel does. Grid: parts of k (a cluster), tiles of rows, tiles of columns.
template <typename T, int kGroups, int kTileRows, typename Addition>
__device__ __forceinline__ void skinny_product(const CUtensorMap& weight_map,
                                               const CUtensorMap& in_map, const SkinnyArgs& args,
                                               Addition& addition) {
  constexpr int kTileColumns = kGroups * kGroupColumns;
  extern __shared__ char shared[];
  const uint32_t start = shared_address(shared);
  const uint32_t memory = (start + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  const uint32_t barriers = memory + skinny_ring_bytes<kTileColumns, kTileRows>(args.num_stages);
  const uint32_t sums =
      kSumsInStages<kTileColumns> ? memory : barriers - sums_bytes(kTileColumns, kTileRows);
  const Ring<kTileColumns, kTileRows> ring = {memory, barriers + 16, args.num_stages};
  const Place place = {args.cluster_rows, args.cluster_columns};
  const Exchange<kTileColumns, kTileRows> exchange = {sums, barriers, args.log2_splits,
                                                      place.rank(0, place.row(), place.column())};

  const int part = blockIdx.x;
  const int first_block = args.num_blocks * part >> args.log2_splits;
  const int end_block = args.num_blocks * (part + 1) >> args.log2_splits;
  const int first_row = blockIdx.y * kTileRows;
  const int first_column = blockIdx.z * (args.silu_and_mul ? kTileColumns / 2 : kTileColumns);
  const int second_column = first_column + (args.silu_and_mul ? args.n / 2 : kTileColumns / 2);
  const Producer<kTileColumns, kTileRows> producer = {ring,         place,         &weight_map,
                                                      &in_map,      first_block,   end_block,
                                                      first_column, second_column, first_row};
  const bool is_producer = threadIdx.x == kGroups * kGroupThreads;
  if (is_producer) {
    constexpr int kWarps = kGroups * kGroupThreads / 32;
    for (int i = 0; i < args.num_stages; ++i) {
      barrier_init(ring.filled(i), 1);
      barrier_init(ring.emptied(i), kWarps * (place.rows + place.columns - 1));
    }
    exchange.expect();
    fence_barrier_init();
    fence_async_proxy_everywhere();
    if (place.rows == 1) producer.fetch_early_weights();
    prefetch_map(in_map);
  }
  release_next();
  __syncthreads();
  if (place.num_blocks() > 1) {
    synchronize_cluster();
  }
  // Others' memory is ready only now.
  if (is_producer && place.rows > 1) producer.fetch_early_weights();
  if (is_producer) {
    addition.wait_for_inputs();
    producer.fetch_rest();
  }
  const uint32_t note = barriers + 8;
  if (threadIdx.x >= kGroups * kGroupThreads) {
    addition.fetch(ring, first_column, end_block - first_block, note);
    return;
  }
  addition.template look_up<kTileColumns>(args, first_column, note);
  consume<T>(ring, place, end_block - first_block, exchange, addition);
  while (!barrier_try_acquire_in_cluster(exchange.barrier, 0)) {
  }
  if (args.silu_and_mul) {
    finish_tile<T, true>(args, exchange);
  } else {
    finish_tile<T, false>(args, exchange);
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

inline CUtensorMap skinny_map(CudaStream& stream, DType dtype, const void* matrix, int64_t rows,
                              int64_t columns, int64_t stride, int box_rows) {
  static_assert(kDepth == kTensorBoxColumns);
  return matrix_tensor_map(
      stream,
      dtype == DType::kFloat16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      matrix, rows, columns, stride, box_rows);
}

// The kernel takes the maps, the arguments and what follows them.
template <int kGroups, int kTileRows, typename Kernel, typename... Rest>
void launch_skinny(CudaStream& stream, Kernel kernel, const CudaLinear& args,
                   const SkinnyPlan& plan, const Rest&... rest) {
  constexpr int kTileColumns = kGroups * kGroupColumns;
  const int shared_bytes =
      kTileAlignment + skinny_ring_bytes<kTileColumns, kTileRows>(plan.num_stages) + kBarrierBytes;
  allow_shared_memory(stream, kernel);
  const CUtensorMap weight_map =
      skinny_map(stream, args.dtype, args.weight.data, args.n, args.k, args.k, kTileColumns / 2);
  const CUtensorMap in_map = skinny_map(stream, args.dtype, args.in, args.rows, args.k,
                                        args.in_stride, kTileRows / plan.cluster_columns);
  const SkinnyArgs kernel_args = {args.bias,
                                  args.out,
                                  args.out_stride,
                                  static_cast<int>(args.rows),
                                  static_cast<int>(args.n),
                                  static_cast<int>(ceil_div(args.k, kDepth)),
                                  plan.num_stages,
                                  std::countr_zero(static_cast<unsigned>(plan.splits)),
                                  plan.cluster_rows,
                                  plan.cluster_columns,
                                  args.out_dtype == DType::kFloat32,
                                  args.silu_and_mul,
                                  args.dtype == DType::kFloat16};
  const auto splits = static_cast<unsigned>(plan.splits);
  cudaLaunchConfig_t config = {};
  // Whole clusters: tiles outside the matrix are multiplied, and not stored.
  const auto tiles = [](int64_t size, int64_t tile, int cluster) {
    return static_cast<unsigned>((size + tile * cluster - 1) / (tile * cluster) * cluster);
  };
  config.gridDim = dim3(splits, tiles(args.rows, kTileRows, plan.cluster_rows),
                        tiles(args.n, kTileColumns, plan.cluster_columns));
  config.blockDim = dim3(kSkinnyThreads<kGroups>);
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream.get();
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = splits;
  attributes[1].val.clusterDim.y = static_cast<unsigned>(plan.cluster_rows);
  attributes[1].val.clusterDim.z = static_cast<unsigned>(plan.cluster_columns);
  config.attrs = attributes;
  config.numAttrs = 2;
  check_cuda(cudaLaunchKernelEx(&config, kernel, weight_map, in_map, kernel_args, rest...),
             "launching a kernel");
}

}  // namespace quire::ops::cuda
