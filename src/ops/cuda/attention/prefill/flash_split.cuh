#pragma once
// The results of the blocks of a cluster that have had different keys of the same rows, put
// together through distributed shared memory: no scratch in device memory, and always in the same
// order.
//
// Clusters are of compute capability 9.0; nothing here is run on devices before it.
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/sm80.cuh"

namespace quire::ops::cuda {

__device__ __forceinline__ int rank_in_cluster() {
  uint32_t rank = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}

// All threads of the cluster's blocks wait for each other, and see what the others have written.
__device__ __forceinline__ void synchronize_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#endif
}

// Of the block `rank` at the place of this block's shared memory `address`.
__device__ __forceinline__ float load_of_rank(uint32_t address, int rank) {
  float value = 0.0f;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote];\n}"
      : "=f"(value)
      : "r"(address), "r"(rank)
      : "memory");
#endif
  return value;
}
__device__ __forceinline__ float4 load_four_of_rank(uint32_t address, int rank) {
  float4 values = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n}"
      : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
      : "r"(address), "r"(rank)
      : "memory");
#endif
  return values;
}

// A block's sums, and the greatest score and the denominator of each row, in shared memory.
template <int kRows, int kHeadDim>
class PartialResult {
 public:
  static constexpr int kRowBytes = (kHeadDim + 8) * 4;  // 8 rows of pairs are in different banks
  static constexpr int kBytes = kRows * (kRowBytes + 8);

  __device__ __forceinline__ explicit PartialResult(uint32_t address) : address_(address) {}

  __device__ __forceinline__ void put_sums(int row, int column, float first, float second) const {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(sums(row, column)), "f"(first),
                 "f"(second)
                 : "memory");
  }
  __device__ __forceinline__ void put_row(int row, float maximum, float denominator) const {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(of_row(row)), "f"(maximum),
                 "f"(denominator)
                 : "memory");
  }

  // Eight columns of a row of the cluster's result. Some block has a key that the row sees.
  template <int kBlocks>
  __device__ __forceinline__ void merge(int row, int column, float scale_log2,
                                        float (&out)[8]) const {
    float maxima[kBlocks];
    float maximum = -INFINITY;
#pragma unroll
    for (int rank = 0; rank < kBlocks; ++rank) {
      maxima[rank] = load_of_rank(of_row(row), rank);
      maximum = fmaxf(maximum, maxima[rank]);
    }
    float denominator = 0.0f;
#pragma unroll
    for (float& value : out) value = 0.0f;
#pragma unroll
    for (int rank = 0; rank < kBlocks; ++rank) {
      const float weight = fast_exp2((maxima[rank] - maximum) * scale_log2);
      denominator += weight * load_of_rank(of_row(row) + 4, rank);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 four = load_four_of_rank(sums(row, column + 4 * i), rank);
        out[4 * i] += weight * four.x;
        out[4 * i + 1] += weight * four.y;
        out[4 * i + 2] += weight * four.z;
        out[4 * i + 3] += weight * four.w;
      }
    }
    const float factor = 1.0f / denominator;
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
