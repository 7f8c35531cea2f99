// Attention in float32 arithmetic, for the element types and head sizes that the tensor core
// kernels do not take. One warp has one row (query and head): lanes are keys while it computes 32
// scores, and elements of the head while it adds up 32 values. The rows of a block share their keys
// and values through the first-level cache.
#include <cuda_fp8.h>

#include <string>

#include "core/launch.cuh"
#include "core/warp_sum.cuh"
#include "ops/cuda/attention/prefill/prefill.cuh"
#include "ops/cuda/attention/tiles.cuh"
#include "ops/cuda/elements.cuh"
#include "quire/error.h"

namespace quire::ops::cuda {
namespace {

constexpr int kWarps = 8;  // rows of a block's tile
constexpr int kLaneElements = kMaxHeadDim / 32;

struct PlainParams {
  TiledBatch batch;
  const void* q;
  int64_t q_stride;
  void* out;
  int num_heads;
  float scale_log2;  // scale * log2(e)
  int64_t sliding_window;
  const void* keys;
  const void* values;
  const float* key_scales;    // [num_kv_heads] of float8, or null: all are 1
  const float* value_scales;  // the same
  int block_size;
  int num_kv_heads;
  int head_dim;
};

__device__ __forceinline__ float element(__nv_fp8_e4m3 value) {
  return static_cast<float>(value);
}
__device__ __forceinline__ float element(__nv_fp8_e5m2 value) {
  return static_cast<float>(value);
}
template <typename T>
__device__ __forceinline__ float element(T value) {
  return to_float(value);
}

__device__ __forceinline__ float scale_of(const float* scales, int kv_head) {
  return scales == nullptr ? 1.0f : scales[kv_head];
}

__device__ __forceinline__ float warp_max(float value) {
  for (int step = 16; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  }
  return value;
}

// q in shared memory times a key; both are read 8 elements at a time.
template <typename KvT>
__device__ __forceinline__ float dot(const float* q, const KvT* key, int head_dim) {
  struct alignas(8 * sizeof(KvT) < 16 ? 8 * sizeof(KvT) : 16) Elements {
    KvT values[8];
  };
  float sum = 0.0f;
  for (int d = 0; d < head_dim; d += 8) {
    const Elements elements = *reinterpret_cast<const Elements*>(key + d);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += q[d + i] * element(elements.values[i]);
  }
  return sum;
}

template <typename T, typename KvT>
__global__ void __launch_bounds__(kWarps * 32) plain_kernel(const PlainParams params) {
  __shared__ float shared_q[kWarps][kMaxHeadDim];
  wait_for_previous();
  release_next();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int kv_head = static_cast<int>(blockIdx.y);
  const QueryTile tile = find_tile<kWarps>(params.batch, static_cast<int>(blockIdx.x));
  const int row = tile.first_row + warp;
  if (row >= tile.rows) return;  // warps work on their own: no barrier follows
  const int head_dim = params.head_dim;
  const auto group = static_cast<int>(params.batch.group.divisor);
  const int query = row / group;
  const int head = kv_head * group + row % group;
  const int position = tile.first_position + query;
  float* const q = shared_q[warp];
  const T* const q_row = static_cast<const T*>(params.q) +
                         (tile.first_query + query) * params.q_stride +
                         static_cast<int64_t>(head) * head_dim;
  for (int d = lane; d < head_dim; d += 32) q[d] = to_float(q_row[d]);
  __syncwarp();

  const float scale = params.scale_log2 * scale_of(params.key_scales, kv_head);
  float maximum = -INFINITY;
  float denominator = 0.0f;
  float sums[kLaneElements] = {};  // of the elements lane + 32 * i
  const int first = first_visible(position, params.sliding_window);
  for (int begin = first / 32 * 32; begin <= position; begin += 32) {
    const int key = begin + lane;
    // Where the key and the value are, in elements; 0 for those that are not seen.
    int64_t place = 0;
    float score = -INFINITY;
    if (key >= first && key <= position) {
      const int64_t block = tile.block_table[key / params.block_size];
      place =
          ((block * params.num_kv_heads + kv_head) * params.block_size + key % params.block_size) *
          head_dim;
      score = scale * dot(q, static_cast<const KvT*>(params.keys) + place, head_dim);
    }
    // Each tile of 32 has a key that is seen, so the maximum is finite.
    const float new_maximum = fmaxf(maximum, warp_max(score));
    const float correction = exp2f(maximum - new_maximum);
    const float probability = exp2f(score - new_maximum);
    maximum = new_maximum;
    denominator = denominator * correction + warp_sum(probability);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) sums[i] *= correction;
    const int low = max(first - begin, 0);
    const int high = min(position - begin, 31);
    for (int k = low; k <= high; ++k) {
      const float weight = __shfl_sync(~0u, probability, k);
      const KvT* const value = static_cast<const KvT*>(params.values) + __shfl_sync(~0u, place, k);
#pragma unroll
      for (int i = 0; i < kLaneElements; ++i) {
        if (lane + 32 * i < head_dim) sums[i] += weight * element(value[lane + 32 * i]);
      }
    }
  }
  T* const out = static_cast<T*>(params.out) +
                 ((tile.first_query + query) * params.num_heads + head) * head_dim;
  const float value_scale = scale_of(params.value_scales, kv_head);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    if (lane + 32 * i >= head_dim) continue;
    out[lane + 32 * i] = from_float<T>(sums[i] / denominator * value_scale);
  }
}

template <typename T>
void launch_plain(CudaStream& stream, const CudaPagedAttention& args) {
  PlainParams params;
  set_queries(params, args);
  params.keys = args.cache.keys;
  params.values = args.cache.values;
  params.key_scales = args.scales.keys;
  params.value_scales = args.scales.values;
  params.block_size = args.cache.block_size;
  params.num_kv_heads = args.cache.num_kv_heads;
  params.head_dim = args.cache.head_dim;
  const dim3 grid(static_cast<unsigned>(max_tiles(args, kWarps)),
                  static_cast<unsigned>(args.cache.num_kv_heads));
  auto kernel = plain_kernel<T, T>;
  if (args.cache.dtype == DType::kFloat8E4M3) kernel = plain_kernel<T, __nv_fp8_e4m3>;
  if (args.cache.dtype == DType::kFloat8E5M2) kernel = plain_kernel<T, __nv_fp8_e5m2>;
  launch(stream, kernel, grid, dim3(kWarps * 32), 0, params);
}

}  // namespace

void plain_attention(CudaStream& stream, const CudaPagedAttention& args) {
  if (args.cache.head_dim > kMaxHeadDim) {
    throw Error("A head has " + std::to_string(args.cache.head_dim) +
                " elements; attention on a GPU takes at most " + std::to_string(kMaxHeadDim) + ".");
  }
  with_element_type(args.dtype,
                    [&](auto element) { launch_plain<decltype(element)>(stream, args); });
}

}  // namespace quire::ops::cuda
