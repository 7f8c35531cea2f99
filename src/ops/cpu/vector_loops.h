#pragma once
// Sums and products of vectors of float32 on one thread: what solving for rounded weights takes its
// time for (quantise/gptq.h).
//
// The same bits with every instruction set: each product is rounded with the sum that it is added
// to, as std::fma does. Thread safety: free functions without state.
#include <cstdint>

namespace quire::ops {

// The sum of a[i] * b[i], in kDotLanes sums: product i belongs to sum i % kDotLanes.
inline constexpr int kDotLanes = 32;
float dot(const float* a, const float* b, int64_t count);

// to[i] += factor * from[i]. The arrays do not overlap.
void add_scaled(float factor, const float* from, int64_t count, float* to);

}  // namespace quire::ops
