#pragma once
// A warp's 16 rows by 32 outputs of what adapters add: t B^T, 16 ranks at a time.
//
// t comes as pairs of numbers of T (ops/cuda/lora_kernels.h). Which output is which column of a
// product is free: lane l has the 8 from 8 (l % 4) on, which it adds to the outputs at once, of
// rows l / 4 and l / 4 + 8. Which rank is which is free as well: the lane's are 4 (l % 4) and the
// next three.
#include <cstdint>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/mma.cuh"

namespace quire::ops::cuda {

inline constexpr int kTileOutputs = 32;

// Sums of the lane's outputs: number i of row l / 4 is in at[i / 2][i % 2], that of row l / 4 + 8
// in at[i / 2][2 + i % 2].
struct TileSums {
  float at[4][4];
};

// The lane's part of B for 16 ranks: of an output each.
struct TileWeights {
  uint2 at[4];
};

// Of the lane's outputs, the i-th of which B's.
__device__ __forceinline__ int tile_output(int i) {
  const int octet = threadIdx.x % 32 / 4;
  return octet / 2 * 8 + 2 * i + octet % 2;
}

// matrix [num_outputs, ranks], zeros beyond it; not looked at where `rank`, the first of the 16, is
// not below ranks.
template <typename T>
__device__ __forceinline__ TileWeights load_weights(const T* matrix, int ranks, int num_outputs,
                                                    int first_output, int rank) {
  TileWeights b;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int output = first_output + tile_output(i);
    b.at[i] = make_uint2(0, 0);
    if (rank < ranks && output < num_outputs) {
      b.at[i] = *reinterpret_cast<const uint2*>(matrix + int64_t{output} * ranks + rank +
                                                4 * (threadIdx.x % 4));
    }
  }
  return b;
}

// The lane's part of t for 16 ranks: of its two rows, each as a sum of two numbers.
struct TileRows {
  uint2 at[2][2];  // [row][number]
};

// t of two rows (-1: zeros) in pairs `max_ranks` apart; not looked at where `rank`, the first of
// the 16, is not below ranks. first_rank is that of the matrix.
template <typename T>
__device__ __forceinline__ TileRows load_rows(const void* t, int64_t max_ranks,
                                              const int (&rows)[2], int first_rank, int rank,
                                              int ranks) {
  TileRows result;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int number = 0; number < 2; ++number) {
      result.at[half][number] = make_uint2(0, 0);
      if (rows[half] >= 0 && rank < ranks) {
        result.at[half][number] = *reinterpret_cast<const uint2*>(
            static_cast<const T*>(t) + (2 * rows[half] + number) * max_ranks + first_rank + rank +
            4 * (threadIdx.x % 4));
      }
    }
  }
  return result;
}

template <typename T>
__device__ __forceinline__ void multiply_tile(TileSums& sums, const TileRows& t,
                                              const TileWeights& b) {
#pragma unroll
  for (int number = 0; number < 2; ++number) {
    const uint2 upper = t.at[0][number];
    const uint2 lower = t.at[1][number];
    const uint32_t a[4] = {upper.x, lower.x, upper.y, lower.y};
#pragma unroll
    for (int i = 0; i < 4; ++i) multiply_add<T>(sums.at[i], a, b.at[i].x, b.at[i].y);
  }
}

// The same from shared memory: t of 16 rows, b the tile's rows of B, each from the 16 ranks on;
// rows kStride elements apart. t's second numbers lie kToSecond elements behind its first.
template <typename T, int kStride, int kToSecond>
__device__ __forceinline__ void multiply_tile(TileSums& sums, const T* t, const T* b) {
  const int rank = 4 * static_cast<int>(threadIdx.x % 4);
  TileWeights weights;
  TileRows rows;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    weights.at[i] = *reinterpret_cast<const uint2*>(b + tile_output(i) * kStride + rank);
    const T* from = t + (static_cast<int>(threadIdx.x) % 32 / 4 + i / 2 * 8) * kStride;
    rows.at[i / 2][i % 2] = *reinterpret_cast<const uint2*>(from + i % 2 * kToSecond + rank);
  }
  multiply_tile<T>(sums, rows, weights);
}

// What an adapter changes in some outputs of a part: the scale of their sums, and from the first of
// them on the vectors that it has.
struct OutputChange {
  float scale = 0;
  const float* factor = nullptr;
  const float* bias = nullptr;
  const float* added = nullptr;

  // Of output i, whose product of adapters is `sum`.
  __device__ __forceinline__ float apply(float base, float sum, int i) const {
    float value = base + scale * sum;
    if (factor != nullptr) {
      const float base_bias = bias == nullptr ? 0.0f : bias[i];
      value = factor[i] * (value - base_bias) + base_bias;
    }
    return added == nullptr ? value : value + added[i];
  }
};

__device__ __forceinline__ OutputChange output_change(const CudaLoraExpand& args,
                                                      const CudaLoraLayer* layer, int part,
                                                      int output) {
  OutputChange change;
  if (layer == nullptr) return change;
  if (layer->rank[part] > 0) change.scale = layer->scale[part];
  if (layer->factor[part] != nullptr) {
    change.factor = layer->factor[part] + output;
    if (args.bias != nullptr) change.bias = args.bias + args.first_output[part] + output;
  }
  if (layer->added[part] != nullptr) change.added = layer->added[part] + output;
  return change;
}

// Whether a part's outputs change where nothing gates them.
__device__ __forceinline__ bool changes_part(const CudaLoraLayer& layer, int part) {
  return layer.rank[part] > 0 || layer.added[part] != nullptr;
}

// The outputs of one of the lane's two rows.
template <typename Out>
__device__ __forceinline__ Pack<Out> add_sums(const Pack<Out>& base, const TileSums& sums, int half,
                                              const OutputChange& change) {
  Pack<Out> result;
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) {
    result.at[i] =
        from_float<Out>(change.apply(to_float(base.at[i]), sums.at[i / 2][2 * half + i % 2], i));
  }
  return result;
}

// silu(gate) * up of those, the same way.
template <typename T>
__device__ __forceinline__ Pack<T> gate_sums(const Pack<T>& gates, const Pack<T>& ups,
                                             const TileSums (&sums)[2], int half,
                                             const OutputChange (&changes)[2]) {
  Pack<T> result;
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) {
    const float gate =
        changes[0].apply(to_float(gates.at[i]), sums[0].at[i / 2][2 * half + i % 2], i);
    const float up = changes[1].apply(to_float(ups.at[i]), sums[1].at[i / 2][2 * half + i % 2], i);
    result.at[i] = from_float<T>(silu(gate) * up);
  }
  return result;
}

}  // namespace quire::ops::cuda
