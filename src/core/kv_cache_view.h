#pragma once
// One layer's part of the paged KV cache on one rank.
//
// Memory is [num_blocks] blocks of `block_size` tokens of `num_kv_heads` heads of `head_dim`
// elements, once for keys and once for values. The device's ops choose the order of the elements in
// a block (ops/attention.h); every block takes block_bytes() for keys and as much for values. An
// int8 cache has float32 scales beside the elements, one for each token and head, for keys and for
// values: an element is its integer times the scale. A float8 cache may have a scale for each head,
// which does not change: x is stored as x / scale. Thread safety: a plain value.
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace quire {

// On the CPU, heads of one-byte elements fill whole registers, and the products of a head with a
// query's integers must add up in an int32 (ops/cpu/kernels.h).
inline constexpr int kMaxNarrowHeadDim = 1024;
constexpr bool takes_narrow_cache(int64_t head_dim) {
  return head_dim % 8 == 0 && head_dim <= kMaxNarrowHeadDim;
}

struct KvCacheView {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_blocks = 0;
  int block_size = 16;   // tokens; a multiple of 16 up to 256
  int num_kv_heads = 0;  // of this rank
  int head_dim = 0;
  // Of a float8 cache: [num_kv_heads] on the cache's device, finite and more than zero, or null
  // where all are 1.
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;

  // Bytes of the keys (or the values) of one head of a block.
  size_t head_bytes() const {
    const size_t scale_bytes = dtype == DType::kInt8 ? sizeof(float) : 0;
    return static_cast<size_t>(block_size) *
           (static_cast<size_t>(head_dim) * size_of(dtype) + scale_bytes);
  }
  size_t block_bytes() const { return static_cast<size_t>(num_kv_heads) * head_bytes(); }
};

}  // namespace quire
