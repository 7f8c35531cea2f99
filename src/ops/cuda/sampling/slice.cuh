#pragma once
// Reading a slice of a row of logits, once: a thread keeps 16 of them in registers.
//
// Thread safety: free functions.
#include "core/warp_sum.cuh"
#include "ops/cuda/sampling/sampling.cuh"

namespace quire::ops::cuda {

inline constexpr int kScanWarps = kScanThreads / kWarpSize;
inline constexpr int kLogitsPerThread = 4 * kChunksPerWarp;

// Four of each of the warp's chunks.
struct ThreadLogits {
  float at[kLogitsPerThread];
};

struct ThreadPlace {
  int32_t slice;
  int32_t first_chunk;  // of the warp
  int32_t first_id;     // of the thread
};

__device__ __forceinline__ ThreadPlace place_in(int32_t slice) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int32_t first_chunk = slice * kChunksPerSlice + warp * kChunksPerWarp;
  return {slice, first_chunk, first_chunk * kChunk + lane * 4};
}

// Id of a thread's i'th logit.
__device__ __forceinline__ int32_t id_at(int32_t first_id, int i) {
  return first_id + i / 4 * kChunk + i % 4;
}

// NaN is left as it is: no maximum takes it, and no comparison. `allowed` is SampleRow's.
__device__ __forceinline__ void load_slice(const float* row, int32_t vocab,
                                           const ThreadPlace& place, ThreadLogits& logits,
                                           const uint32_t* allowed = nullptr) {
  const bool is_inside = (place.slice + 1) * kSlice <= vocab;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
    const int32_t at = place.first_id + chunk * kChunk;
    const float4 raw =
        is_inside ? *reinterpret_cast<const float4*>(row + at) : load_logits(row, vocab, at);
    const float4 four = mask_logits(raw, allowed, vocab, at);
    logits.at[4 * chunk] = four.x;
    logits.at[4 * chunk + 1] = four.y;
    logits.at[4 * chunk + 2] = four.z;
    logits.at[4 * chunk + 3] = four.w;
  }
}

// Writes the maxima of the warp's chunks, and returns the thread's own.
__device__ __forceinline__ float find_chunk_maxima(const ThreadLogits& logits,
                                                   const ThreadPlace& place, float* chunk_maxima) {
  float thread_max = kMinusInfinity;
#pragma unroll
  for (int chunk = 0; chunk < kChunksPerWarp; ++chunk) {
    // fmaxf returns the other argument where one is NaN.
    const float* four = &logits.at[4 * chunk];
    const float most =
        fmaxf(fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3])), kMinusInfinity);
    const float chunk_max = warp_max(most);
    if (threadIdx.x % kWarpSize == 0) chunk_maxima[place.first_chunk + chunk] = chunk_max;
    thread_max = fmaxf(thread_max, most);
  }
  return thread_max;
}

// The maximum over the block. `shared` is not used for anything else.
__device__ __forceinline__ float block_max(float value, float* shared) {
  value = warp_max(value);
  if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  for (int warp = 0; warp < kScanWarps; ++warp) value = fmaxf(value, shared[warp]);
  return value;
}

// Each warp's sum of the weights relative to `max`; a barrier later, sum_of_warps() has that of
// all.
__device__ __forceinline__ void sum_warp_weights(const ThreadLogits& logits, float max, float scale,
                                                 float* warp_sums) {
  float sum = 0.0f;
#pragma unroll
  for (const float logit : logits.at) sum += fmaxf(weight_of((logit - max) * scale), 0.0f);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) warp_sums[threadIdx.x / kWarpSize] = sum;
}

__device__ __forceinline__ float sum_of_warps(const float* warp_sums) {
  float sum = 0.0f;
  for (int warp = 0; warp < kScanWarps; ++warp) sum += warp_sums[warp];
  return sum;
}

}  // namespace quire::ops::cuda
