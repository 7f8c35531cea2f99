#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

constexpr Kernels kScalar = {
    .multiplies_bf16 = false,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = nullptr,
    .linear_f32 = scalar::linear_f32,
    .linear_bf16 = scalar::linear_bf16,
    .linear_f8 = scalar::linear_f8,
    .rms_norm = scalar::rms_norm,
    .silu_and_mul = scalar::silu_and_mul,
    .norm_rope = scalar::norm_rope,
    .attention_f32 = scalar::attention_f32,
    .attention_bf16 = scalar::attention_bf16,
};

constexpr Kernels kAvx2 = {
    .multiplies_bf16 = false,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = nullptr,
    .linear_f32 = avx2::linear_f32,
    .linear_bf16 = avx2::linear_bf16,
    .linear_f8 = scalar::linear_f8,
    .rms_norm = avx2::rms_norm,
    .silu_and_mul = avx2::silu_and_mul,
    .norm_rope = avx2::norm_rope,
    .attention_f32 = avx2::attention_f32,
    .attention_bf16 = avx2::attention_bf16,
};

constexpr Kernels kAvx512 = {
    .multiplies_bf16 = true,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = avx512::pack_bf16,
    .linear_f32 = avx512::linear_f32,
    .linear_bf16 = avx512::linear_bf16,
    .linear_f8 = scalar::linear_f8,
    .rms_norm = avx512::rms_norm,
    .silu_and_mul = avx512::silu_and_mul,
    .norm_rope = avx512::norm_rope,
    .attention_f32 = avx512::attention_f32,
    .attention_bf16 = avx512::attention_bf16,
};

}  // namespace

const Kernels& kernels_for(Isa isa) {
  if (isa == Isa::kAvx512) return kAvx512;
  return isa == Isa::kAvx2 ? kAvx2 : kScalar;
}

}  // namespace quire::ops
