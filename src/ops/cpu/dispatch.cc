#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

constexpr Kernels kScalar = {
    .multiplies_bf16 = false,
    .bf16_tile_rows = kTileRows,
    .bf16_tile_steps = 1,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = nullptr,
    .linear_f32 = scalar::linear_f32,
    .linear_bf16 = scalar::linear_bf16,
    .linear_f8 = scalar::linear_f8,
    .pack_i8 = scalar::pack_i8,
    .linear_i8 = scalar::linear_i8,
    .linear_i4 = scalar::linear_i4,
    .linear_unpacked_i4 = scalar::linear_unpacked_i4,
    .pack_i8_tiles = nullptr,
    .linear_i8_tiles = nullptr,
    .unpack_i4 = scalar::unpack_i4,
    .sum_group = scalar::sum_group,
    .fit_group = scalar::fit_group,
    .round_group = scalar::round_group,
    .rms_norm = scalar::rms_norm,
    .silu_and_mul = scalar::silu_and_mul,
    .norm_rope = scalar::norm_rope,
    .attention_f32 = scalar::attention_f32,
    .attention_bf16 = scalar::attention_bf16,
    .attention_e4m3 = scalar::attention_e4m3,
    .attention_e5m2 = scalar::attention_e5m2,
    .attention_i8 = scalar::attention_i8,
    .interleave = scalar::interleave,
    .round_f8 = scalar::round_f8,
    .round_e5m2 = scalar::round_e5m2,
    .dot = scalar::dot,
    .add_scaled = scalar::add_scaled,
};

constexpr Kernels kAvx2 = {
    .multiplies_bf16 = false,
    .bf16_tile_rows = kTileRows,
    .bf16_tile_steps = 1,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = nullptr,
    .linear_f32 = avx2::linear_f32,
    .linear_bf16 = avx2::linear_bf16,
    .linear_f8 = avx2::linear_f8,
    .pack_i8 = avx2::pack_i8,
    .linear_i8 = avx2::linear_i8,
    .linear_i4 = avx2::linear_i4,
    .linear_unpacked_i4 = avx2::linear_unpacked_i4,
    .pack_i8_tiles = nullptr,
    .linear_i8_tiles = nullptr,
    .unpack_i4 = avx2::unpack_i4,
    .sum_group = avx2::sum_group,
    .fit_group = avx2::fit_group,
    .round_group = avx2::round_group,
    .rms_norm = avx2::rms_norm,
    .silu_and_mul = avx2::silu_and_mul,
    .norm_rope = avx2::norm_rope,
    .attention_f32 = avx2::attention_f32,
    .attention_bf16 = avx2::attention_bf16,
    .attention_e4m3 = avx2::attention_e4m3,
    .attention_e5m2 = avx2::attention_e5m2,
    .attention_i8 = avx2::attention_i8,
    .interleave = scalar::interleave,
    .round_f8 = avx2::round_f8,
    .round_e5m2 = avx2::round_e5m2,
    .dot = avx2::dot,
    .add_scaled = avx2::add_scaled,
};

constexpr Kernels with_avxvnni(Kernels kernels) {
  kernels.linear_i8 = avxvnni::linear_i8;
  kernels.linear_i4 = avxvnni::linear_i4;
  kernels.linear_unpacked_i4 = avxvnni::linear_unpacked_i4;
  return kernels;
}

constexpr Kernels kAvxVnni = with_avxvnni(kAvx2);

constexpr Kernels with_vnni(Kernels kernels) {
  kernels.pack_i8 = avx512vnni::pack_i8;
  kernels.linear_i8 = avx512vnni::linear_i8;
  kernels.linear_i4 = avx512vnni::linear_i4;
  kernels.linear_unpacked_i4 = avx512vnni::linear_unpacked_i4;
  kernels.unpack_i4 = avx512vnni::unpack_i4;
  kernels.attention_f32 = avx512vnni::attention_f32;
  kernels.attention_bf16 = avx512vnni::attention_bf16;
  kernels.attention_e4m3 = avx512vnni::attention_e4m3;
  kernels.attention_e5m2 = avx512vnni::attention_e5m2;
  kernels.attention_i8 = avx512vnni::attention_i8;
  kernels.interleave = avx512vnni::interleave;
  return kernels;
}

constexpr Kernels kAvx512Vnni = with_vnni(kAvx2);

constexpr Kernels kAvx512 = {
    .multiplies_bf16 = true,
    .bf16_tile_rows = kTileRows,
    .bf16_tile_steps = 1,
    .pack_f32 = scalar::pack_f32,
    .pack_bf16 = avx512::pack_bf16,
    .linear_f32 = avx512::linear_f32,
    .linear_bf16 = avx512::linear_bf16,
    .linear_f8 = avx512::linear_f8,
    .pack_i8 = avx512vnni::pack_i8,
    .linear_i8 = avx512vnni::linear_i8,
    .linear_i4 = avx512vnni::linear_i4,
    .linear_unpacked_i4 = avx512vnni::linear_unpacked_i4,
    .pack_i8_tiles = nullptr,
    .linear_i8_tiles = nullptr,
    .unpack_i4 = avx512vnni::unpack_i4,
    .sum_group = avx2::sum_group,
    .fit_group = avx2::fit_group,
    .round_group = avx2::round_group,
    .rms_norm = avx512::rms_norm,
    .silu_and_mul = avx512::silu_and_mul,
    .norm_rope = avx512::norm_rope,
    .attention_f32 = avx512vnni::attention_f32,
    .attention_bf16 = avx512vnni::attention_bf16,
    .attention_e4m3 = avx512vnni::attention_e4m3,
    .attention_e5m2 = avx512vnni::attention_e5m2,
    .attention_i8 = avx512vnni::attention_i8,
    .interleave = avx512vnni::interleave,
    .round_f8 = avx2::round_f8,
    .round_e5m2 = avx2::round_e5m2,
    .dot = avx2::dot,
    .add_scaled = avx2::add_scaled,
};

constexpr Kernels with_amx(Kernels kernels) {
  kernels.bf16_tile_rows = kAmxTileRows;
  kernels.bf16_tile_steps = kAmxTileSteps;
  kernels.pack_bf16 = amx::pack_bf16;
  kernels.linear_bf16 = amx::linear_bf16;
  kernels.pack_i8_tiles = amx::pack_i8_tiles;
  kernels.linear_i8_tiles = amx::linear_i8_tiles;
  return kernels;
}

constexpr Kernels kAmx = with_amx(kAvx512);

}  // namespace

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return kScalar;
    case Isa::kAvx2:
      return kAvx2;
    case Isa::kAvxVnni:
      return kAvxVnni;
    case Isa::kAvx512Vnni:
      return kAvx512Vnni;
    case Isa::kAvx512:
      return kAvx512;
    case Isa::kAmx:
      return kAmx;
  }
  return kScalar;
}

}  // namespace quire::ops
