#pragma once
// How the CPU orders the elements of a KV block. Only the attention ops include this.
//
// A block holds its KV heads one after the other. Within a head
//   keys:   [block_size / 16][head_dim / key_step][16 tokens][key_step elements]
//   values: [block_size / value_step][head_dim][value_step tokens]
// and, of int8, the scales after them: float32[block_size].
// A register of keys holds 16 tokens' part of a score, and one of values 16 elements of a token, or
// of two neighbouring tokens: both products run over steps without shuffles. Keys of int8 come in
// fours, whose products with the query's integers are added up as integers.
#include <cstddef>
#include <cstdint>

#include "core/kv_cache_view.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

constexpr int64_t kv_key_step(DType dtype) {
  return dtype == DType::kInt8 ? 4 : dtype == DType::kBFloat16 ? 2 : 1;
}
constexpr int64_t kv_value_step(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : 1;
}

// Bytes from the start of a block to the part of `head`.
inline int64_t kv_head_offset(const KvCacheView& cache, int64_t head) {
  return head * static_cast<int64_t>(cache.head_bytes());
}

// Elements from the head's part of a block to element 0 of the key of the block's token `token`.
// Element d is d / step * step * kKeyLanes + d % step further on.
inline int64_t key_offset(const KvCacheView& cache, int64_t token) {
  return token / kKeyLanes * kKeyLanes * cache.head_dim +
         token % kKeyLanes * kv_key_step(cache.dtype);
}

// The same of its value, whose element d is d * step further on.
inline int64_t value_offset(const KvCacheView& cache, int64_t token) {
  const int64_t step = kv_value_step(cache.dtype);
  return token / step * step * cache.head_dim + token % step;
}

// Elements, of one byte, from the head's part of an int8 block to its scales.
inline int64_t scale_offset(const KvCacheView& cache) {
  return int64_t{cache.block_size} * cache.head_dim;
}

}  // namespace quire::ops
