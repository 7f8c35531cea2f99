// A block takes one token; a few lanes take one of its heads. Bound by memory: the token's heads
// are read once, q is written back, k and v go to the cache.
#include <cuda_fp8.h>

#include <algorithm>
#include <type_traits>

#include "core/launch.cuh"
#include "ops/cuda_kernels.h"
#include "ops/elements.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kMaxThreads = 256;
constexpr int kBlocksPerMultiprocessor = 3;

// Where a token's key or value of one KV head is in the cache.
__device__ int64_t cache_offset(const CudaKvCache& cache, int64_t slot, int head) {
  // No memory holds 2^31 tokens, and 64-bit divisions are slow.
  const int64_t block = static_cast<int>(slot) / cache.block_size;
  const int token = static_cast<int>(slot) % cache.block_size;
  return ((block * cache.num_kv_heads + head) * cache.block_size + token) * cache.head_dim;
}

template <typename Kv>
__device__ __forceinline__ Kv to_cache(float value) {
  if constexpr (std::is_same_v<Kv, __nv_fp8_e4m3>) {
    return Kv(value);  // saturates
  } else {
    return from_float<Kv>(value);
  }
}

template <typename T>
__device__ __forceinline__ void to_floats(float (&to)[kPackSize], const Pack<T>& pack) {
#pragma unroll
  for (int i = 0; i < kPackSize; ++i) to[i] = to_float(pack.at[i]);
}

template <typename T>
__device__ __forceinline__ void store_floats(T* to, const float (&from)[kPackSize]) {
  if constexpr (sizeof(T) == 1) {
    __nv_fp8x4_e4m3 words[2] = {__nv_fp8x4_e4m3(make_float4(from[0], from[1], from[2], from[3])),
                                __nv_fp8x4_e4m3(make_float4(from[4], from[5], from[6], from[7]))};
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0].__x, words[1].__x);
  } else {
    Pack<T> pack;
#pragma unroll
    for (int i = 0; i < kPackSize; ++i) pack.at[i] = from_float<T>(from[i]);
    store_pack(to, pack);
  }
}

// A lane's part of a head: 8 elements of the first half and the 8 that they are rotated with.
template <typename T>
struct HeadPart {
  Pack<T> low;
  Pack<T> high;
};

// What a block works on: the heads from first_head on of a token.
template <typename T>
struct Job {
  int position;
  int64_t slot;
  HeadPart<T> part;
};

// Heads that are rotated whole, of 16 * kLanes elements or fewer: with a lane's part as above
// nothing but the norm's sum crosses lanes. A token's heads are cut into `passes`; the next job is
// read while one is worked on.
template <typename T, typename Kv, int kLanes>
__global__ void __launch_bounds__(kMaxThreads, kBlocksPerMultiprocessor)
    qk_norm_rope_kernel(const __grid_constant__ CudaQkNormRopeCache p, int passes) {
  const int half = p.cache.head_dim / 2;
  const int num_kv_heads = p.cache.num_kv_heads;
  const int num_heads = p.num_heads + 2 * num_kv_heads;
  const int element = static_cast<int>(threadIdx.x) % kLanes * kPackSize;
  const bool has_elements = element < half;
  const int heads_per_pass = static_cast<int>(blockDim.x) / kLanes;
  const int num_jobs = static_cast<int>(p.num_tokens) * passes;
  const auto head_of = [&](int job) {
    return job % passes * heads_per_pass + static_cast<int>(threadIdx.x) / kLanes;
  };
  const auto part_of = [&](int job) {
    return static_cast<T*>(p.qkv) +
           (int64_t{job / passes} * num_heads + head_of(job)) * p.cache.head_dim + element;
  };
  const auto read = [&](int job) {
    Job<T> result = {};
    if (job >= num_jobs) return result;
    if (has_elements && head_of(job) < num_heads) {
      const T* x = part_of(job);
      result.part = {load_pack(x), load_pack(x + half)};
    }
    result.position = p.positions[job / passes];
    result.slot = p.slot_mapping[job / passes];
    return result;
  };

  wait_for_previous();
  release_next();
  const int stride = static_cast<int>(gridDim.x);
  Job<T> next = read(static_cast<int>(blockIdx.x));
  for (int number = static_cast<int>(blockIdx.x); number < num_jobs; number += stride) {
    const Job<T> job = next;
    const int head = head_of(number);
    const bool is_query = head < p.num_heads;
    const bool is_value = head >= p.num_heads + num_kv_heads;
    const bool works = has_elements && head < num_heads;
    Pack<float> cosines = {};
    Pack<float> sines = {};
    if (works && !is_value) {
      const float* cos_sin = p.cos_sin + int64_t{job.position} * p.rotary_dim + element;
      cosines = load_pack(cos_sin);
      sines = load_pack(cos_sin + half);
    }
    next = read(number + stride);

    float low[kPackSize];
    float high[kPackSize];
    to_floats(low, job.part.low);
    to_floats(high, job.part.high);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPackSize; ++i) sum += low[i] * low[i] + high[i] * high[i];
      // Whole warps are here.
#pragma unroll
    for (int i = kLanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
    if (!works) continue;
    const float* norm = is_query ? p.q_norm : p.k_norm;
    if (!is_value) {
      if (norm != nullptr) {
        const float factor = rsqrtf(sum / static_cast<float>(2 * half) + p.eps);
        const Pack<float> low_norm = load_pack(norm + element);
        const Pack<float> high_norm = load_pack(norm + half + element);
#pragma unroll
        for (int i = 0; i < kPackSize; ++i) {
          low[i] *= factor * low_norm.at[i];
          high[i] *= factor * high_norm.at[i];
        }
      }
#pragma unroll
      for (int i = 0; i < kPackSize; ++i) {
        const float rotated = low[i] * cosines.at[i] - high[i] * sines.at[i];
        high[i] = high[i] * cosines.at[i] + low[i] * sines.at[i];
        low[i] = rotated;
      }
    }
    if (is_query) {
      T* x = part_of(number);
      store_floats(x, low);
      store_floats(x + half, high);
    } else if (job.slot >= 0) {
      const int kv_head = head - p.num_heads - (is_value ? num_kv_heads : 0);
      Kv* to = static_cast<Kv*>(is_value ? p.cache.values : p.cache.keys) +
               cache_offset(p.cache, job.slot, kv_head) + element;
      store_floats(to, low);
      store_floats(to + half, high);
    }
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
      for (int i = 16; i > 0; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
      factor = rsqrtf(sum / static_cast<float>(head_dim) + p.eps);
    }
    Kv* to = nullptr;
    if (!is_query && slot >= 0) {
      const int kv_head = head - p.num_heads - (is_value ? num_kv_heads : 0);
      to = static_cast<Kv*>(is_value ? p.cache.values : p.cache.keys) +
           cache_offset(p.cache, slot, kv_head);
    }
    const auto normed = [&](int d) {
      return norm != nullptr ? to_float(x[d]) * factor * norm[d] : to_float(x[d]);
    };
    const auto store = [&](int d, float value) {
      if (is_query) {
        x[d] = from_float<T>(value);
      } else if (to != nullptr) {
        to[d] = to_cache<Kv>(value);
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
  const bool is_fast = args.rotary_dim == head_dim && head_dim % (2 * kPackSize) == 0;
  const int lanes = head_dim / (2 * kPackSize);
  // As many threads as take every head in the fewest passes.
  const auto launch_lanes = [&](auto kernel, int lanes_of_head) {
    const int64_t passes = ceil_div(num_heads * lanes_of_head, kMaxThreads);
    const int64_t warps = ceil_div(ceil_div(num_heads, passes) * lanes_of_head, 32);
    const int64_t blocks =
        kBlocksPerMultiprocessor * stream.num_multiprocessors() * (kMaxThreads / 32) / warps;
    const int64_t grid = std::min(args.num_tokens * passes, blocks);
    launch(stream, kernel, dim3(static_cast<unsigned>(grid)),
           dim3(static_cast<unsigned>(32 * warps)), 0, args, static_cast<int>(passes));
  };
  if (is_fast && lanes <= 4) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 4>, 4);
  } else if (is_fast && lanes <= 8) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 8>, 8);
  } else if (is_fast && lanes <= 16) {
    launch_lanes(qk_norm_rope_kernel<T, Kv, 16>, 16);
  } else {
    launch(stream, plain_qk_norm_rope_kernel<T, Kv>, dim3(static_cast<unsigned>(args.num_tokens)),
           dim3(kMaxThreads), 0, args);
  }
}

}  // namespace

void qk_norm_rope_cache(CudaStream& stream, const CudaQkNormRopeCache& args) {
  if (args.num_tokens == 0) return;
  with_element_type(args.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.cache.dtype == DType::kFloat8E4M3) {
      launch_for<T, __nv_fp8_e4m3>(stream, args);
    } else {
      launch_for<T, T>(stream, args);
    }
  });
}

}  // namespace quire::ops::cuda
