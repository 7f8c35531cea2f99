#pragma once
// The results of the blocks of a cluster that have had different keys of the same rows, put
// together through distributed shared memory: no scratch in device memory, and always in the same
// order.
//
// Clusters are of compute capability 9.0; nothing here is run on devices before it.
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {

// A block's sums, and the greatest score and the denominator of each row, in shared memory.
template <int kRows, int kHeadDim>
class PartialResult {
 public:
  static constexpr int kRowBytes = (kHeadDim + 8) * 4;  // 8 rows of pairs are in different banks
  static constexpr int kBytes = kRows * (kRowBytes + 8);

  __device__ __forceinline__ explicit PartialResult(uint32_t address) : address_(address) {}

  __device__ __forceinline__ void put_sums(int row, int column, float first, float second) const {
    store_pair(sums(row, column), first, second);
  }
  __device__ __forceinline__ void put_row(int row, float maximum, float denominator) const {
    store_pair(of_row(row), maximum, denominator);
  }

  // Eight columns of a row of the cluster's result, times `value_scale`. Some block has a key that
  // the row sees.
  template <int kBlocks>
  __device__ __forceinline__ void merge(int row, int column, float scale_log2, float value_scale,
                                        float (&out)[8]) const {
    float maxima[kBlocks];
    float maximum = -INFINITY;
#pragma unroll
    for (int rank = 0; rank < kBlocks; ++rank) {
      maxima[rank] = load_in_cluster(address_in_cluster(of_row(row), rank));
      maximum = fmaxf(maximum, maxima[rank]);
    }
    float denominator = 0.0f;
#pragma unroll
    for (float& value : out) value = 0.0f;
#pragma unroll
    for (int rank = 0; rank < kBlocks; ++rank) {
      const float weight = fast_exp2((maxima[rank] - maximum) * scale_log2);
      denominator += weight * load_in_cluster(address_in_cluster(of_row(row) + 4, rank));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 four =
            load_four_in_cluster(address_in_cluster(sums(row, column + 4 * i), rank));
        out[4 * i] += weight * four.x;
        out[4 * i + 1] += weight * four.y;
        out[4 * i + 2] += weight * four.z;
        out[4 * i + 3] += weight * four.w;
      }
    }
    const float factor = value_scale / denominator;
#pragma unroll
    for (float& value : out) value *= factor;
  }

 private:
  __device__ __forceinline__ uint32_t sums(int row, int column) const {
    return address_ + static_cast<uint32_t>(row * kRowBytes + column * 4);
  }
  __device__ __forceinline__ uint32_t of_row(int row) const {
    return address_ + static_cast<uint32_t>(kRows * kRowBytes + row * 8);
  }

  const uint32_t address_;
};

}  // namespace quire::ops::cuda
