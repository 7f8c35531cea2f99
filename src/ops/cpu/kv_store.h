#pragma once
// Writes keys and values into the CPU's KV cache, rounded to what it holds.
//
// Thread safety: calls for different slots may run at once.
#include <cstdint>

#include "core/kv_cache_view.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

// One token's key and value of one KV head, head_dim numbers each, into `slot`. A cache of int8
// gets for each of the two the scale largest magnitude / 127, and integers to nearest even;
// infinities and NaN make the scale NaN. float8 is rounded as Float8E4M3 says.
void store_key_value(const Kernels& kernels, const KvCacheView& cache, int64_t slot, int64_t head,
                     const float* key, const float* value);

// Of `count` numbers; an infinity or NaN where there is one.
float largest_magnitude(const float* values, int count);
// Numbers whose largest magnitude is less become integers 0 with a scale of 0: a scale's inverse
// would overflow, and such heads are next to nothing.
inline constexpr float kLeastToRound = 1e-30f;

}  // namespace quire::ops
