#pragma once
// Writes keys and values into the CPU's KV cache, rounded to the cache's type.
//
// Thread safety: calls for different slots may run at once.
#include <cstdint>

#include "core/kv_cache_view.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

// Stores one token's key and value of one KV head, head_dim numbers each, in `slot`. In an int8
// cache each of the two gets the scale largest magnitude / 127, and integers rounded to nearest
// even; infinities and NaN make the scale NaN. For float8 the numbers are divided by the cache's
// scales, and rounded as Float8E4M3 or Float8E5M2 does.
void store_key_value(const Kernels& kernels, const KvCacheView& cache, int64_t slot, int64_t head,
                     const float* key, const float* value);

// The largest magnitude of `count` numbers; an infinity or NaN if there is one.
float largest_magnitude(const float* values, int count);
// If the largest magnitude is less, integers and scale are 0: a scale's inverse would overflow, and
// such heads contribute next to nothing.
inline constexpr float kLeastToRound = 1e-30f;

}  // namespace quire::ops
