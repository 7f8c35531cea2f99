#pragma once
// The element types of activations on the device, and packs of them that move as 16-byte words.
//
// Pointers to what an earlier kernel writes are not __restrict__: loads through const __restrict__
// pointers may be moved up, past wait_for_previous().
//
// Thread safety: free functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "base/check.h"
#include "core/dtype.h"

namespace quire::ops::cuda {

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float to_float(__half value) {
  return __half2float(value);
}

template <typename T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

// Whether elements of a KV cache are __nv_fp8_e4m3 or __nv_fp8_e5m2.
template <typename Kv>
inline constexpr bool kIsFloat8 = sizeof(Kv) == 1;

// Elements that a thread loads or stores together.
inline constexpr int kPackSize = 8;

template <typename T>
struct alignas(16) Pack {
  T at[kPackSize];
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  static_assert(sizeof(Pack<T>) % sizeof(uint4) == 0);
  Pack<T> pack;
#pragma unroll
  for (size_t i = 0; i < sizeof(Pack<T>) / sizeof(uint4); ++i) {
    reinterpret_cast<uint4*>(&pack)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return pack;
}

template <typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
#pragma unroll
  for (size_t i = 0; i < sizeof(Pack<T>) / sizeof(uint4); ++i) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(&pack)[i];
  }
}

// Host code: calls body(T()) with the type of `dtype`: float, __nv_bfloat16 or __half.
template <typename Body>
void with_element_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(float());
    case DType::kBFloat16:
      return body(__nv_bfloat16());
    case DType::kFloat16:
      return body(__half());
    default:
      check(false, "activations are float32, bfloat16 or float16");
  }
}

}  // namespace quire::ops::cuda
