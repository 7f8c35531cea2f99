// x A^T of rows with adapters.
#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/rows.cuh"
#include "ops/cuda/ptx/mma.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
// Inputs that a block multiplies at a time: 32 for each warp; lane l has the 8 from 8 (l % 4) on.
constexpr int kInputStep = 32 * kWarps;

__device__ __forceinline__ float* sums_of(const CudaLoraShrink& args, int split, int row) {
  return args.t + (split * args.rows.num_rows + row) * args.max_ranks;
}

// 16 rows by 8 * kTiles ranks over a split of the inputs; warps share the inputs out. An input's
// place in the products is the same for x and A and otherwise free, so that each lane loads 16
// bytes at a time. Grid: items, ranks, splits.
template <typename T, int kTiles>
__global__ __launch_bounds__(kThreads) void shrink_tiles(
    const __grid_constant__ CudaLoraShrink args) {
  // Loads of A that are under way before the kernel before has ended.
  constexpr int kAhead = kTiles <= 2 ? 4 : 1;
  constexpr int kRanks = 8 * kTiles;
  __shared__ float sums[kWarps][kLoraItemRows][kRanks];
  release_next();
  const LoraBlock block = lora_block(args.rows, args.layers, args.layer_stride, blockIdx.x);
  const int first_rank = blockIdx.y * kRanks;
  const int ranks = block.layer == nullptr ? 0 : block.layer->ranks;
  if (first_rank >= ranks) return wait_for_previous();

  const int warp = threadIdx.x / 32;
  const int octet = threadIdx.x % 32 / 4;
  const int64_t lane_input = warp * 32 + threadIdx.x % 4 * 8;
  const int num_steps = static_cast<int>(ceil_div<int64_t>(args.k, kInputStep));
  const int split = blockIdx.z;
  const int end = num_steps * (split + 1) / args.splits;
  int step = num_steps * split / args.splits;

  const auto* matrix = static_cast<const T*>(block.layer->a);
  uint4 a[kAhead][kTiles];
  const auto load_a = [&] {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t input = int64_t{step + i} * kInputStep + lane_input;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int rank = first_rank + 8 * tile + octet;
        a[i][tile] = make_uint4(0, 0, 0, 0);
        if (step + i < end && input < args.k && rank < ranks) {
          a[i][tile] = *reinterpret_cast<const uint4*>(matrix + rank * args.k + input);
        }
      }
    }
  };
  load_a();
  const int rows[2] = {local_row(args.rows, block.item, octet),
                       local_row(args.rows, block.item, octet + 8)};
  wait_for_previous();

  float products[kTiles][4] = {};
  const auto* in = static_cast<const T*>(args.x);
  while (step < end) {
    uint4 x[kAhead][2];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t input = int64_t{step + i} * kInputStep + lane_input;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        x[i][half] = make_uint4(0, 0, 0, 0);
        if (step + i < end && input < args.k && rows[half] >= 0) {
          x[i][half] = *reinterpret_cast<const uint4*>(in + rows[half] * args.x_stride + input);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const uint32_t first[4] = {x[i][0].x, x[i][1].x, x[i][0].y, x[i][1].y};
      const uint32_t second[4] = {x[i][0].z, x[i][1].z, x[i][0].w, x[i][1].w};
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (first_rank + 8 * tile >= ranks) continue;
        multiply_add<T>(products[tile], first, a[i][tile].x, a[i][tile].y);
        multiply_add<T>(products[tile], second, a[i][tile].z, a[i][tile].w);
      }
    }
    step += kAhead;
    if (step < end) load_a();
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int column = 8 * tile + threadIdx.x % 4 * 2;
    sums[warp][octet][column] = products[tile][0];
    sums[warp][octet][column + 1] = products[tile][1];
    sums[warp][octet + 8][column] = products[tile][2];
    sums[warp][octet + 8][column + 1] = products[tile][3];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kLoraItemRows * kRanks; i += kThreads) {
    const int rank = i % kRanks;
    const int row = local_row(args.rows, block.item, i / kRanks);
    if (row < 0 || first_rank + rank >= ranks) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += sums[part][i / kRanks][rank];
    sums_of(args, split, row)[first_rank + rank] = sum;
  }
}

// For float32, and inputs that are no whole number of packs. Grid: items, ranks, splits.
template <typename T>
__global__ __launch_bounds__(kThreads) void shrink_elements(
    const __grid_constant__ CudaLoraShrink args) {
  __shared__ float sums[kWarps];
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

template <typename T, int kTiles>
void launch_tiles(CudaStream& stream, const CudaLoraShrink& args) {
  const dim3 grid(static_cast<unsigned>(args.rows.max_items),
                  static_cast<unsigned>(ceil_div<int64_t>(args.max_ranks, 8 * kTiles)),
                  static_cast<unsigned>(args.splits));
  launch(stream, shrink_tiles<T, kTiles>, grid, dim3(kThreads), 0, args);
}

}  // namespace

void lora_shrink(CudaStream& stream, const CudaLoraShrink& args) {
  if (args.rows.num_rows == 0 || args.rows.max_items == 0 || args.max_ranks == 0) return;
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      if (args.k % kPackSize == 0 && args.x_stride % kPackSize == 0) {
        // With many rows there are blocks enough, and the fewer of them read a row the better.
        if (args.rows.num_rows > kMostLoraSplitRows) return launch_tiles<T, 6>(stream, args);
        return launch_tiles<T, 2>(stream, args);
      }
    }
    const dim3 grid(static_cast<unsigned>(args.rows.max_items),
                    static_cast<unsigned>(args.max_ranks), static_cast<unsigned>(args.splits));
    launch(stream, shrink_elements<T>, grid, dim3(kThreads), 0, args);
  });
}

}  // namespace quire::ops::cuda
