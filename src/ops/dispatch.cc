#include "ops/dispatch.h"

namespace quire::ops {

const Kernels& kernels_for(Isa isa) {
  static constexpr Kernels kScalar = {
      .multiplies_bf16 = false,
      .pack_f32 = scalar::pack_f32,
      .pack_bf16 = nullptr,
      .linear_f32 = scalar::linear_f32,
      .linear_bf16 = scalar::linear_bf16,
      .rms_norm = scalar::rms_norm,
      .silu_and_mul = scalar::silu_and_mul,
      .norm_rope = scalar::norm_rope,
      .attention_f32 = scalar::attention_f32,
      .attention_bf16 = scalar::attention_bf16,
  };
  (void)isa;
  return kScalar;
}

}  // namespace quire::ops
