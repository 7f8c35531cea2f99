#pragma once
// Which SIMD instruction sets the ops have kernels for, and which of them this CPU runs.
//
// Thread safety: free functions, from any thread.
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

enum class Isa {
  kScalar,   // plain x86-64
  kAvx2,     // AVX2, FMA, F16C
  kAvxVnni,  // AVX-VNNI for products of integer weights and activations; the rest is as kAvx2
  // AVX-512 F, BW, VL, DQ and VNNI, for integer weights and activations and for attention; the
  // rest is as kAvx2
  kAvx512Vnni,
  kAvx512,  // AVX-512 F, BW, VL, DQ, VNNI and BF16; CPUs with part of these take what they have
  // AMX TILE, BF16 and INT8 for products with bfloat16 weights, and of many rows with integer ones;
  // the rest is as kAvx512
  kAmx,
};

// "scalar", "avx2", "avxvnni", "avx512vnni", "avx512", "amx".
std::string_view name_of(Isa isa);
std::optional<Isa> isa_from_name(std::string_view name);

// Whether the CPU has the instructions and the system saves their registers. Of kAmx it asks the
// system for these, for the whole process: Linux gives them to those that ask.
bool supports(Isa isa);
// The supported ones, slowest first; kScalar is always among them.
std::vector<Isa> supported_isas();
// The last of supported_isas().
Isa best_isa();

}  // namespace quire
