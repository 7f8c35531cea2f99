// Norms with weights that adapters have trained.
#include "core/launch.cuh"
#include "core/warp_sum.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora/rows.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

// The sum over the block, in every thread. To be called once.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float sums[kWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float part : sums) sum += part;
  return sum;
}

// kWidth elements of T or of the weight, together where there are as many as a pack.
template <typename T, int kWidth>
struct alignas(kWidth == kPackSize ? alignof(Pack<T>) : alignof(T)) Elements {
  T at[kWidth];

  __device__ explicit Elements(const T* from) {
    if constexpr (kWidth == kPackSize) {
      *reinterpret_cast<Pack<T>*>(at) = load_pack(from);
    } else {
      at[0] = from[0];
    }
  }
  __device__ void store(T* to) const {
    if constexpr (kWidth == kPackSize) {
      store_pack(to, *reinterpret_cast<const Pack<T>*>(at));
    } else {
      to[0] = at[0];
    }
  }
};

// A row a block; the second time it comes from a cache. Grid: items, their rows.
template <typename T, int kWidth>
__global__ __launch_bounds__(kThreads) void replace_norm(
    const __grid_constant__ CudaLoraNorm args) {
  release_next();
  const LoraBlock block = lora_block(args.rows, nullptr, 0, blockIdx.x);
  const int row = local_row(args.rows, block.item, static_cast<int>(blockIdx.y));
  const float* const weight =
      block.item.slot < 0 ? nullptr : args.weights[block.item.slot * args.weight_stride];
  wait_for_previous();
  if (row < 0 || weight == nullptr) return;
  const T* const in = static_cast<const T*>(args.x) + row * args.n;
  T* const out = static_cast<T*>(args.out) + row * args.n;
  float squares = 0;
  for (int64_t i = threadIdx.x * kWidth; i < args.n; i += kThreads * kWidth) {
    const Elements<T, kWidth> x(in + i);
#pragma unroll
    for (const T value : x.at) squares += to_float(value) * to_float(value);
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(args.n) + args.eps);
  for (int64_t i = threadIdx.x * kWidth; i < args.n; i += kThreads * kWidth) {
    Elements<T, kWidth> x(in + i);
    const Elements<float, kWidth> weights(weight + i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      x.at[j] = from_float<T>(to_float(x.at[j]) * scale * weights.at[j]);
    }
    x.store(out + i);
  }
}

}  // namespace

void lora_norm(CudaStream& stream, const CudaLoraNorm& args) {
  if (args.rows.num_rows == 0 || args.rows.max_items == 0 || args.n == 0) return;
  const auto rows = args.rows.num_rows < kLoraItemRows ? args.rows.num_rows : kLoraItemRows;
  const dim3 grid(static_cast<unsigned>(args.rows.max_items), static_cast<unsigned>(rows));
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.n % kPackSize == 0) {
      launch(stream, replace_norm<T, kPackSize>, grid, dim3(kThreads), 0, args);
    } else {
      launch(stream, replace_norm<T, 1>, grid, dim3(kThreads), 0, args);
    }
  });
}

}  // namespace quire::ops::cuda
