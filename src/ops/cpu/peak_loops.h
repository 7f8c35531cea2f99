#pragma once
// Multiply-adds on registers alone, as many at once as hide their latency: the arithmetic ceiling.
//
// Included by files compiled for one instruction set: declarations only (see ops/cpu/kernels.h).
// Thread safety: all functions work on their arguments alone.
#include <cstdint>

namespace quire::ops {

// Each runs `steps` rounds, writes the result to *sink so that the work is not optimised away, and
// returns how many operations it did (a multiply-add counts as two).
namespace scalar {
double peak_f32(int64_t steps, float* sink);
}
namespace avx2 {
double peak_f32(int64_t steps, float* sink);
}
namespace avx512 {
double peak_f32(int64_t steps, float* sink);
double peak_bf16(int64_t steps, float* sink);
}  // namespace avx512

}  // namespace quire::ops
