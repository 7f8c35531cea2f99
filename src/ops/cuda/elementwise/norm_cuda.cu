// Root-mean-square norms, with the residual's sum before them.
//
// A block takes whole rows, one at a time. How a row's sum is cut depends only on its length, so a
// row's result does not depend on how many others there are.
#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "core/launch.cuh"
#include "core/warp_sum.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/float8_rounding.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/float8.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kMostWarps = 32;

// The sum over the block, in every thread. `shared` is written anew each time, so between two calls
// with the same one lies a barrier.
__device__ __forceinline__ float block_sum(float value, float* shared) {
  value = warp_sum(value);
  const unsigned num_warps = blockDim.x / kWarpSize;
  if (num_warps == 1) return value;
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarpSize;
  return warp_sum(lane < num_warps ? shared[lane] : 0.0f);
}

__device__ __forceinline__ float scale_of(float sum_of_squares, float eps, int64_t n) {
  return rsqrtf(sum_of_squares / static_cast<float>(n) + eps);
}

// What a kernel writes: the norm itself, or rounded for a product of float8 weights.
enum class NormOutput { kPlain, kRoundedRows, kRoundedBlocks };

// Threads that run at once on a multiprocessor: rounding needs registers.
constexpr int64_t threads_at_once(NormOutput output, int packs) {
  return output == NormOutput::kPlain ? 2048 : packs == 1 ? 1536 : packs == 2 ? 1024 : 512;
}

// The row stays in registers: kPacks packs a thread.
template <typename T, bool kHasResidual, int kPacks, NormOutput kOutput>
__global__ void rms_norm_packs(const T* x, T* residual, const float* __restrict__ weight, float eps,
                               int64_t rows, int64_t n, T* out, int64_t out_stride,
                               Float8Activations rounded) {
  __shared__ float shared[2][kMostWarps];
  Pack<float> weights[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int64_t at = (int64_t{i} * blockDim.x + threadIdx.x) * kPackSize;
    if (at < n) weights[i] = load_pack(weight + at);
  }
  release_next();
  wait_for_previous();
  int turn = 0;  // two rows in turn use the shared memory, so one barrier a row is enough
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, turn ^= 1) {
    Pack<T> values[kPacks];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = (int64_t{i} * blockDim.x + threadIdx.x) * kPackSize;
      if (at >= n) continue;
      values[i] = load_pack(x + row * n + at);
      if constexpr (kHasResidual) {
        const Pack<T> before = load_pack(residual + row * n + at);
#pragma unroll
        for (int j = 0; j < kPackSize; ++j) {
          values[i].at[j] = from_float<T>(to_float(before.at[j]) + to_float(values[i].at[j]));
        }
        store_pack(residual + row * n + at, values[i]);
      }
#pragma unroll
      for (int j = 0; j < kPackSize; ++j) {
        const float value = to_float(values[i].at[j]);
        sum += value * value;
      }
    }
    const float scale = scale_of(block_sum(sum, shared[turn]), eps, n);
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const int64_t at = (int64_t{i} * blockDim.x + threadIdx.x) * kPackSize;
      if (at >= n) continue;
#pragma unroll
      for (int j = 0; j < kPackSize; ++j) {
        values[i].at[j] = from_float<T>(to_float(values[i].at[j]) * scale * weights[i].at[j]);
      }
      if constexpr (kOutput == NormOutput::kPlain) {
        store_pack(out + row * out_stride + at, values[i]);
      }
    }
    if constexpr (kOutput != NormOutput::kPlain) {
      __shared__ unsigned greatest[kMostWarps];
      store_rounded_row<kOutput == NormOutput::kRoundedBlocks>(
          values, row, static_cast<int>(n / kPackSize), rounded, greatest);
    }
  }
}

// For rows that are no whole number of packs, or too long for registers: read twice.
template <typename T, bool kHasResidual>
__global__ void rms_norm_elements(const T* x, T* residual, const float* __restrict__ weight,
                                  float eps, int64_t n, T* out, int64_t out_stride) {
  __shared__ float shared[kMostWarps];
  release_next();
  wait_for_previous();
  const int64_t start = int64_t{blockIdx.x} * n;
  float sum = 0.0f;
  for (int64_t i = start + threadIdx.x; i < start + n; i += blockDim.x) {
    T value = x[i];
    if constexpr (kHasResidual) {
      value = from_float<T>(to_float(residual[i]) + to_float(value));
      residual[i] = value;
    }
    sum += to_float(value) * to_float(value);
  }
  const float scale = scale_of(block_sum(sum, shared), eps, n);
  const T* in = kHasResidual ? residual : x;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    out[int64_t{blockIdx.x} * out_stride + i] =
        from_float<T>(to_float(in[start + i]) * scale * weight[i]);
  }
}

int64_t out_stride_of(const CudaRmsNorm& args) {
  return args.out_stride == 0 ? args.n : args.out_stride;
}

template <typename T, bool kHasResidual, int kPacks, NormOutput kOutput>
void launch_output(CudaStream& stream, const CudaRmsNorm& args) {
  const int64_t packs = args.n / kPackSize;
  const int64_t threads = ceil_div(ceil_div(packs, kPacks), kWarpSize) * kWarpSize;
  // As many blocks as run at once: later rows find the weights in registers.
  const int64_t blocks = std::min(
      args.rows, stream.num_multiprocessors() * (threads_at_once(kOutput, kPacks) / threads));
  launch(stream, rms_norm_packs<T, kHasResidual, kPacks, kOutput>,
         dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), 0,
         static_cast<const T*>(args.x), static_cast<T*>(args.residual), args.weight, args.eps,
         args.rows, args.n, static_cast<T*>(args.out), out_stride_of(args), args.rounded);
}

template <typename T, bool kHasResidual, int kPacks>
void launch_packs(CudaStream& stream, const CudaRmsNorm& args) {
  if constexpr (sizeof(T) == 2) {
    if (args.rounded.has_blocks()) {
      return launch_output<T, kHasResidual, kPacks, NormOutput::kRoundedBlocks>(stream, args);
    }
    if (args.rounded.data != nullptr) {
      return launch_output<T, kHasResidual, kPacks, NormOutput::kRoundedRows>(stream, args);
    }
  }
  launch_output<T, kHasResidual, kPacks, NormOutput::kPlain>(stream, args);
}

template <typename T, bool kHasResidual>
void launch_rms_norm(CudaStream& stream, const CudaRmsNorm& args) {
  constexpr int64_t kMostThreads = 512;
  const int64_t packs = args.n % kPackSize == 0 ? args.n / kPackSize : INT64_MAX;
  if (packs <= kMostThreads) {
    launch_packs<T, kHasResidual, 1>(stream, args);
  } else if (packs <= 2 * kMostThreads) {
    launch_packs<T, kHasResidual, 2>(stream, args);
  } else if (packs <= 4 * kMostThreads) {
    launch_packs<T, kHasResidual, 4>(stream, args);
  } else {
    launch(stream, rms_norm_elements<T, kHasResidual>, dim3(static_cast<unsigned>(args.rows)),
           dim3(kMostThreads), 0, static_cast<const T*>(args.x), static_cast<T*>(args.residual),
           args.weight, args.eps, args.n, static_cast<T*>(args.out), out_stride_of(args));
    if (args.rounded.data == nullptr) return;
    round_to_float8(stream, {.dtype = args.dtype,
                             .in = args.out,
                             .in_stride = out_stride_of(args),
                             .rows = args.rows,
                             .k = args.n,
                             .out = args.rounded});
  }
}

}  // namespace

void rms_norm(CudaStream& stream, const CudaRmsNorm& args) {
  if (args.rows == 0 || args.n == 0) return;
  check(
      args.rounded.data == nullptr || (args.n % kFloat8Block == 0 && args.dtype != DType::kFloat32),
      "what is rounded has 16 bits, in rows of whole blocks");
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.residual != nullptr) {
      launch_rms_norm<T, true>(stream, args);
    } else {
      launch_rms_norm<T, false>(stream, args);
    }
  });
}

}  // namespace quire::ops::cuda
