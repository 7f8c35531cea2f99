#pragma once
// The arithmetic ceiling: multiply-adds on registers, enough of them at once to hide their latency.
// peak_i8 multiplies bytes by int8 and adds the products up in 32 bits.
//
// Included by files compiled for one instruction set: declarations only (see ops/cpu/kernels.h).
// Thread safety: functions touch nothing but their arguments.
#include <cstdint>

namespace quire::ops {

// Each runs `steps` rounds, writes the result to *sink so that the work is not optimised away, and
// returns how many operations it did (a multiply-add counts as two).
namespace scalar {
double peak_f32(int64_t steps, float* sink);
double peak_i8(int64_t steps, float* sink);
}  // namespace scalar
namespace avx2 {
double peak_f32(int64_t steps, float* sink);
double peak_i8(int64_t steps, float* sink);
}  // namespace avx2
namespace avxvnni {
double peak_i8(int64_t steps, float* sink);
}
namespace avx512vnni {
double peak_i8(int64_t steps, float* sink);
}
namespace avx512 {
double peak_f32(int64_t steps, float* sink);
double peak_bf16(int64_t steps, float* sink);
}  // namespace avx512
namespace amx {
double peak_bf16(int64_t steps, float* sink);
double peak_i8(int64_t steps, float* sink);
}  // namespace amx

}  // namespace quire::ops
