#pragma once
// How activations are rounded to float8: the greatest magnitude of a row, or of kFloat8Block inputs
// of it, becomes 448. A row with a number that is not finite has a scale that is not. Every kernel
// that rounds does it with these functions, so that all give the same bits.
//
// Thread safety: free functions.
#include <cuda_fp8.h>

#include <cstdint>

#include "ops/cuda/elements.cuh"
#include "ops/float8_activations.h"
#include "ops/weight_format.h"

namespace quire::ops::cuda {

// Magnitudes as integers are in order: NaN above infinity above all numbers.
template <typename T>
__device__ __forceinline__ unsigned greatest_of(const Pack<T>& pack) {
  unsigned greatest = 0;
#pragma unroll
  for (const T& value : pack.at) {
    greatest = max(greatest, __float_as_uint(to_float(value)) & 0x7fffffffu);
  }
  return greatest;
}

// Of the block's threads, in every thread. `shared` has room for one of each warp; a barrier lies
// between two calls with the same one.
__device__ __forceinline__ unsigned greatest_of_block(unsigned greatest, unsigned* shared) {
  constexpr unsigned kWarpThreads = 32;
  greatest = __reduce_max_sync(0xffffffffu, greatest);
  const unsigned lane = threadIdx.x % kWarpThreads;
  if (lane == 0) shared[threadIdx.x / kWarpThreads] = greatest;
  __syncthreads();
  return __reduce_max_sync(0xffffffffu, lane < blockDim.x / kWarpThreads ? shared[lane] : 0);
}

// Of the threads that have the packs of a block of inputs, neighbours in a warp, in each of them.
inline constexpr int kThreadsOfFloat8Block = kFloat8Block / kPackSize;
__device__ __forceinline__ unsigned greatest_of_float8_block(unsigned greatest) {
#pragma unroll
  for (int distance = 1; distance < kThreadsOfFloat8Block; distance *= 2) {
    greatest = max(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
  }
  return greatest;
}

__device__ __forceinline__ float float8_scale_of(unsigned greatest) {
  constexpr float kGreatest = 448;
  // So that 448 over a magnitude is finite. NaN stays.
  constexpr float kLeastScale = 1e-36f;
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

// The compiler forgets that it has the pack's numbers as float32, which take twice the registers.
template <typename T>
__device__ __forceinline__ void keep_packed(Pack<T>& pack) {
#pragma unroll
  for (size_t i = 0; i < sizeof(Pack<T>) / sizeof(unsigned); ++i) {
    asm volatile("" : "+r"(reinterpret_cast<unsigned*>(&pack)[i]));
  }
}

// Row `row` of out, which the block's threads hold: pack j of a thread is pack
// j * blockDim.x + threadIdx.x of the row. `shared`: greatest_of_block()'s, without kHasBlocks.
template <bool kHasBlocks, typename T, int kPacks>
__device__ __forceinline__ void store_rounded_row(Pack<T> (&packs)[kPacks], int64_t row,
                                                  int num_packs, const Float8Activations& out,
                                                  unsigned* shared) {
  uint8_t* data = out.data + row * num_packs * kPackSize;
  unsigned greatest = 0;
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const int i = j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
    const unsigned own = i < num_packs ? greatest_of(packs[j]) : 0;
    keep_packed(packs[j]);
    if constexpr (kHasBlocks) {
      const float scale = float8_scale_of(greatest_of_float8_block(own));
      if (i < num_packs) {
        if (i % kThreadsOfFloat8Block == 0) {
          out.scales[i / kThreadsOfFloat8Block * out.scale_stride + row] = scale;
        }
        store_rounded(packs[j], 1.0f / scale, data + i * kPackSize);
      }
    } else {
      greatest = max(greatest, own);
    }
  }
  if constexpr (!kHasBlocks) {
    const float scale = float8_scale_of(greatest_of_block(greatest, shared));
    if (threadIdx.x == 0) out.scales[row] = scale;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const int i = j * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      if (i < num_packs) store_rounded(packs[j], 1.0f / scale, data + i * kPackSize);
    }
  }
}

}  // namespace quire::ops::cuda
