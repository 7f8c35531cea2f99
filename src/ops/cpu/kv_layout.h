#pragma once
// How the CPU orders the elements of a KV block. Only the attention ops include this.
//
// A block holds its KV heads one after the other. `values_per_step` is 1 for float32, 2 for
// bfloat16 (ops/cpu/kernels.h explains steps). Within a head
//   keys:   [block_size / 16][head_dim / values_per_step][16 tokens][values_per_step]
//   values: [block_size / values_per_step][head_dim][values_per_step tokens]
// so that one register of keys holds 16 tokens' part of a score, and one of values 16 elements of
// a token or of two neighbouring tokens: both products run over steps without shuffles.
#include <cstdint>

#include "core/kv_cache_view.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

constexpr int64_t kv_values_per_step(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : 1;
}

// Elements from the start of a block to the part of `head`.
inline int64_t kv_head_offset(const KvCacheView& cache, int64_t head) {
  return head * cache.block_size * cache.head_dim;
}

// Elements from the head's part of a block to element `d` of the key of the block's token `token`.
inline int64_t key_offset(const KvCacheView& cache, int64_t token, int64_t d) {
  const int64_t values = kv_values_per_step(cache.dtype);
  return token / kKeyLanes * kKeyLanes * cache.head_dim +
         (d / values * kKeyLanes + token % kKeyLanes) * values + d % values;
}

inline int64_t value_offset(const KvCacheView& cache, int64_t token, int64_t d) {
  const int64_t values = kv_values_per_step(cache.dtype);
  return (token / values * cache.head_dim + d) * values + token % values;
}

}  // namespace quire::ops
