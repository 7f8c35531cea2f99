// A block takes one token; a few lanes take one of its heads. Bound by memory: the token's heads
// are read once, q is written back, k and v go to the cache.
#include <cuda_fp8.h>

#include <type_traits>

#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "core/warp_sum.cuh"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernels.h"

namespace quire::ops::cuda {
namespace {

constexpr int kMaxThreads = 256;

// Where a token's key or value of one KV head is in the cache.
__device__ int64_t cache_offset(const CudaKvCache& cache, int64_t slot, int head) {
  // No memory holds 2^31 tokens, and 64-bit divisions are slow.
  const int64_t block = static_cast<int>(slot) / cache.block_size;
  const int token = static_cast<int>(slot) % cache.block_size;
  return ((block * cache.num_kv_heads + head) * cache.block_size + token) * cache.head_dim;
}

template <typename Kv>
__device__ __forceinline__ Kv to_cache(float value) {
  if constexpr (kIsFloat8<Kv>) {
    return Kv(value);  // saturates
  } else {
    return from_float<Kv>(value);
  }
}

// What a head's keys, or its values, are divided by before they are stored.
__device__ __forceinline__ float scale_of(const CudaKvScales& all, bool is_value, int kv_head) {
  const float* scales = is_value ? all.values : all.keys;
  return scales == nullptr ? 1.0f : scales[kv_head];
}

template <typename T>
__device__ __forceinline__ void load_floats(float (&to)[kPackSize], const T* from) {
  const Pack<T> pack = load_pack(from);
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) to[i] = to_float(pack.at[i]);
}

template <typename T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[kPackSize]) {
  if constexpr (kIsFloat8<T>) {
    using Four =
        std::conditional_t<std::is_same_v<T, __nv_fp8_e5m2>, __nv_fp8x4_e5m2, __nv_fp8x4_e4m3>;
    Four words[2] = {Four(make_float4(from[0], from[1], from[2], from[3])),
                     Four(make_float4(from[4], from[5], from[6], from[7]))};
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0].__x, words[1].__x);
  } else {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPackSize; ++i) pack.at[i] = from_float<T>(from[i]);
    store_pack(to, pack);
  }
}

// Heads that are rotated whole, of 16 * kLanes elements or fewer: a lane takes 8 elements of the
// first half and the 8 that they are rotated with, so that nothing but the norm's sum crosses
// lanes.
template <typename T, typename Kv, int kLanes>
__global__ void __launch_bounds__(kMaxThreads, 4)
    qk_norm_rope_kernel(const __grid_constant__ CudaQkNormRopeCache p) {
  const int half = p.cache.head_dim / 2;
  const int num_kv_heads = p.cache.num_kv_heads;
  const int num_heads = p.num_heads + 2 * num_kv_heads;
  const int64_t token = blockIdx.x;
  const int element = static_cast<int>(threadIdx.x) % kLanes * kPackSize;
  const bool has_elements = element < half;
  const int heads_of_block = static_cast<int>(blockDim.x) / kLanes;
  const int head =
      static_cast<int>(blockIdx.y) * heads_of_block + static_cast<int>(threadIdx.x) / kLanes;
  const bool is_value = head >= p.num_heads + num_kv_heads;
  const bool is_query = head < p.num_heads;
  const bool works = has_elements && head < num_heads;

  wait_for_previous();
  release_next();
  const int64_t slot = p.slot_mapping[token];
  float cosines[kPackSize];
  float sines[kPackSize];
  if (has_elements) {
    const float* cos_sin = p.cos_sin + int64_t{p.positions[token]} * p.rotary_dim;
    load_floats(cosines, cos_sin + element);
    load_floats(sines, cos_sin + half + element);
  }

  T* x = static_cast<T*>(p.qkv) + (token * num_heads + head) * p.cache.head_dim + element;
  float low[kPackSize] = {};
  float high[kPackSize] = {};
  if (works) {
    load_floats(low, x);
    load_floats(high, x + half);
  }
  const float* norm = is_query ? p.q_norm : p.k_norm;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) sum += low[i] * low[i] + high[i] * high[i];
#pragma unroll
  for (int i = kLanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
  // Whole warps have been here for the sum over lanes.
  if (!works) return;
  if (!is_value) {
    if (norm != nullptr) {
      const float factor = rsqrtf(sum / static_cast<float>(2 * half) + p.eps);
      float low_norm[kPackSize];
      float high_norm[kPackSize];
      load_floats(low_norm, norm + element);
      load_floats(high_norm, norm + half + element);
#pragma unroll
      for (int i = 0; i < kPackSize; ++i) {
        low[i] *= factor * low_norm[i];
        high[i] *= factor * high_norm[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kPackSize; ++i) {
      const float rotated = low[i] * cosines[i] - high[i] * sines[i];
      high[i] = high[i] * cosines[i] + low[i] * sines[i];
      low[i] = rotated;
    }
  }
  if (is_query) {
    store_floats(x, low);
    store_floats(x + half, high);
  } else if (slot >= 0) {
    const int kv_head = head - p.num_heads - (is_value ? num_kv_heads : 0);
    Kv* to = static_cast<Kv*>(is_value ? p.cache.values : p.cache.keys) +
             cache_offset(p.cache, slot, kv_head) + element;
    const float scale = kIsFloat8<Kv> ? scale_of(p.scales, is_value, kv_head) : 1.0f;
    if (scale != 1.0f) {
#pragma unroll
      for (int i = 0; i < kPackSize; ++i) {
        low[i] /= scale;
        high[i] /= scale;
      }
    }
    store_floats(to, low);
    store_floats(to + half, high);
  }
}

// Any head size and rotary part: a warp takes a head, an element at a time.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kMaxThreads)
    plain_qk_norm_rope_kernel(const __grid_constant__ CudaQkNormRopeCache p) {
  const int head_dim = p.cache.head_dim;
  const int num_kv_heads = p.cache.num_kv_heads;
  const int num_heads = p.num_heads + 2 * num_kv_heads;
  const int half = p.rotary_dim / 2;
  const int64_t token = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;

  wait_for_previous();
  release_next();
  const int64_t slot = p.slot_mapping[token];
  const float* cosines = p.cos_sin + int64_t{p.positions[token]} * p.rotary_dim;
  const float* sines = cosines + half;
  for (int head = static_cast<int>(threadIdx.x) / 32; head < num_heads; head += warps) {
    T* x = static_cast<T*>(p.qkv) + (token * num_heads + head) * head_dim;
    const bool is_query = head < p.num_heads;
    const bool is_value = head >= p.num_heads + num_kv_heads;
    const float* norm = is_value ? nullptr : is_query ? p.q_norm : p.k_norm;
    float factor = 1.0f;
    if (norm != nullptr) {
      float sum = 0.0f;
      for (int d = lane; d < head_dim; d += 32) sum += to_float(x[d]) * to_float(x[d]);
      factor = rsqrtf(warp_sum(sum) / static_cast<float>(head_dim) + p.eps);
    }
    Kv* to = nullptr;
    float scale = 1.0f;
    if (!is_query && slot >= 0) {
      const int kv_head = head - p.num_heads - (is_value ? num_kv_heads : 0);
      to = static_cast<Kv*>(is_value ? p.cache.values : p.cache.keys) +
           cache_offset(p.cache, slot, kv_head);
      if constexpr (kIsFloat8<Kv>) scale = scale_of(p.scales, is_value, kv_head);
    }
    const auto normed = [&](int d) {
      return norm != nullptr ? to_float(x[d]) * factor * norm[d] : to_float(x[d]);
    };
    const auto store = [&](int d, float value) {
      if (is_query) {
        x[d] = from_float<T>(value);
      } else if (to != nullptr) {
        to[d] = to_cache<Kv>(kIsFloat8<Kv> ? value / scale : value);
      }
    };
    const int rotated = is_value ? 0 : half;
    for (int d = lane; d < rotated; d += 32) {
      const float low = normed(d);
      const float high = normed(d + half);
      store(d, low * cosines[d] - high * sines[d]);
      store(d + half, high * cosines[d] + low * sines[d]);
    }
    for (int d = 2 * rotated + lane; d < head_dim; d += 32) store(d, normed(d));
  }
}

template <typename T, typename Kv>
void launch_for(CudaStream& stream, const CudaQkNormRopeCache& args) {
  const int head_dim = args.cache.head_dim;
  const int num_heads = args.num_heads + 2 * args.cache.num_kv_heads;
  const auto num_tokens = static_cast<unsigned>(args.num_tokens);
  const bool is_fast = args.rotary_dim == head_dim && head_dim % (2 * kPackSize) == 0;
  const int lanes = head_dim / (2 * kPackSize);
  // A token's heads in as few blocks as hold them, all of a size.
  const auto launch_lanes = [&](auto kernel, int lanes_of_head) {
    const int64_t blocks = ceil_div(num_heads * lanes_of_head, kMaxThreads);
    const int64_t warps = ceil_div(ceil_div(num_heads, blocks) * lanes_of_head, 32);
    launch(stream, kernel, dim3(num_tokens, static_cast<unsigned>(blocks)),
           dim3(static_cast<unsigned>(32 * warps)), 0, args);
  };
  if (is_fast && lanes <= 4) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 4>, 4);
  } else if (is_fast && lanes <= 8) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 8>, 8);
  } else if (is_fast && lanes <= 16) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 16>, 16);
  } else {
    launch(stream, plain_qk_norm_rope_kernel<T, Kv>, dim3(num_tokens), dim3(kMaxThreads), 0, args);
  }
}

}  // namespace

void qk_norm_rope_cache(CudaStream& stream, const CudaQkNormRopeCache& args) {
  if (args.num_tokens == 0) return;
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.cache.dtype == DType::kFloat8E4M3) {
      launch_for<T, __nv_fp8_e4m3>(stream, args);
    } else if (args.cache.dtype == DType::kFloat8E5M2) {
      launch_for<T, __nv_fp8_e5m2>(stream, args);
    } else {
      launch_for<T, T>(stream, args);
    }
  });
}

}  // namespace quire::ops::cuda
