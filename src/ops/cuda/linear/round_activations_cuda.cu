#include <cuda_fp8.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/linear/float8.cuh"

namespace quire::ops::cuda {
namespace {

constexpr float kGreatest = 448;
// So that 448 over a magnitude is finite. NaN stays.
constexpr float kLeastScale = 1e-36f;

struct RoundArgs {
  const void* in;
  int64_t in_stride;
  int64_t rows;
  int k;
  uint8_t* out;
  float* scales;
  int64_t scale_stride;
};

__device__ __forceinline__ unsigned magnitude_of(float value) {
  return __float_as_uint(value) & 0x7fffffffu;
}

// Magnitudes as integers are in order: NaN above infinity above all numbers.
template <typename T>
__device__ __forceinline__ unsigned greatest_of(const Pack<T>& pack) {
  unsigned greatest = 0;
#pragma unroll
  for (const T& value : pack.at) {
    greatest = max(greatest, magnitude_of(to_float(value)));
  }
  return greatest;
}

__device__ __forceinline__ float scale_of(unsigned greatest) {
  const float scale = __uint_as_float(greatest) / kGreatest;
  return scale < kLeastScale ? kLeastScale : scale;
}

template <typename T>
__device__ __forceinline__ void store_rounded(const Pack<T>& pack, float inverse, uint8_t* out) {
  uint2 bytes;
  const auto four = [&](int first) {
    const auto at = [&](int i) { return to_float(pack.at[first + i]) * inverse; };
    const unsigned low =
        __nv_cvt_float2_to_fp8x2(make_float2(at(0), at(1)), __NV_SATFINITE, __NV_E4M3);
    const unsigned high =
        __nv_cvt_float2_to_fp8x2(make_float2(at(2), at(3)), __NV_SATFINITE, __NV_E4M3);
    return low | high << 16;
  };
  bytes.x = four(0);
  bytes.y = four(4);
  *reinterpret_cast<uint2*>(out) = bytes;
}

// A scale for each row; a row a block. A thread keeps kHeld packs, and reads those of longer rows
// twice.
constexpr int kMostRowThreads = 512;
constexpr int kHeld = 4;

template <typename T>
__global__ __launch_bounds__(kMostRowThreads) void round_rows_kernel(RoundArgs args) {
  __shared__ unsigned greatest_of_warps[kMostRowThreads / 32];
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const T* in = static_cast<const T*>(args.in) + row * args.in_stride;
  uint8_t* out = args.out + row * args.k;
  const int num_packs = args.k / kPackSize;
  const auto num_threads = static_cast<int>(blockDim.x);
  Pack<T> held[kHeld];
  unsigned greatest = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) held[j] = load_pack(in + i * kPackSize);
  }
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) greatest = max(greatest, greatest_of(held[j]));
  }
  for (int i = kHeld * num_threads + threadIdx.x; i < num_packs; i += num_threads) {
    greatest = max(greatest, greatest_of(load_pack(in + i * kPackSize)));
  }
  greatest = __reduce_max_sync(0xffffffffu, greatest);
  const int lane = threadIdx.x % 32;
  if (lane == 0) greatest_of_warps[threadIdx.x / 32] = greatest;
  __syncthreads();
  greatest = lane < num_threads / 32 ? greatest_of_warps[lane] : 0;
  const float scale = scale_of(__reduce_max_sync(0xffffffffu, greatest));
  if (threadIdx.x == 0) args.scales[row] = scale;
  const float inverse = 1.0f / scale;
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = j * num_threads + threadIdx.x;
    if (i < num_packs) store_rounded(held[j], inverse, out + i * kPackSize);
  }
  for (int i = kHeld * num_threads + threadIdx.x; i < num_packs; i += num_threads) {
    store_rounded(load_pack(in + i * kPackSize), inverse, out + i * kPackSize);
  }
}

// Few rows are done soonest by many threads; of many, small blocks keep more reads in flight.
int threads_of_row(int64_t rows, int64_t k) {
  constexpr int64_t kFewRows = 256;
  const int64_t packs_each = rows <= kFewRows ? 1 : kHeld;
  const int64_t threads = round_up(ceil_div(k / kPackSize, packs_each), 32);
  return static_cast<int>(std::min<int64_t>(threads, kMostRowThreads));
}

// A scale for each kFloat8Block inputs of a row; 16 threads have them.
constexpr int kBlocksThreads = 256;
constexpr int kThreadsOfBlock = kFloat8Block / kPackSize;

template <typename T>
__global__ __launch_bounds__(kBlocksThreads) void round_blocks_kernel(RoundArgs args) {
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.x;
  const int pack = blockIdx.y * kBlocksThreads + threadIdx.x;
  const bool is_inside = pack < args.k / kPackSize;
  Pack<T> values = {};
  if (is_inside) {
    values = load_pack(static_cast<const T*>(args.in) + row * args.in_stride + pack * kPackSize);
  }
  unsigned greatest = greatest_of(values);
#pragma unroll
  for (int distance = 1; distance < kThreadsOfBlock; distance *= 2) {
    greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
  }
  if (!is_inside) return;
  const float scale = scale_of(greatest);
  if (pack % kThreadsOfBlock == 0) {
    args.scales[pack / kThreadsOfBlock * args.scale_stride + row] = scale;
  }
  store_rounded(values, 1.0f / scale, args.out + row * args.k + pack * kPackSize);
}

template <typename T>
void launch_rounding(CudaStream& stream, bool has_blocks, const RoundArgs& args) {
  if (has_blocks) {
    const auto blocks = static_cast<unsigned>(ceil_div(args.k / kPackSize, kBlocksThreads));
    launch(stream, round_blocks_kernel<T>, dim3(static_cast<unsigned>(args.rows), blocks),
           kBlocksThreads, 0, args);
  } else {
    launch(stream, round_rows_kernel<T>, static_cast<unsigned>(args.rows),
           threads_of_row(args.rows, args.k), 0, args);
  }
}

}  // namespace

Float8Activations float8_activations(const CudaLinear& args, bool for_cublas) {
  check(args.scratch != nullptr, "a product of float8 weights has scratch memory");
  auto* data = static_cast<uint8_t*>(args.scratch);
  const int64_t data_bytes = round_up(args.rows * args.k, 256);
  return {data, reinterpret_cast<float*>(data + data_bytes),
          for_cublas ? args.rows : round_up(args.rows, kLinearScaleRows)};
}

void round_activations(CudaStream& stream, const CudaLinear& args,
                       const Float8Activations& activations) {
  const RoundArgs kernel_args = {.in = args.in,
                                 .in_stride = args.in_stride,
                                 .rows = args.rows,
                                 .k = static_cast<int>(args.k),
                                 .out = activations.data,
                                 .scales = activations.scales,
                                 .scale_stride = activations.scale_stride};
  if (args.dtype == DType::kFloat16) {
    launch_rounding<__half>(stream, has_blocks(args), kernel_args);
  } else {
    launch_rounding<__nv_bfloat16>(stream, has_blocks(args), kernel_args);
  }
}

}  // namespace quire::ops::cuda
