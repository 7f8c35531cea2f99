#include "base/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace quire {
namespace {

// F16C: bit 29 of ECX in leaf 1. Not every compiler's __builtin_cpu_supports knows it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

// AVX-VNNI: bit 4 of EAX in the second part of leaf 7. GCC 12's __builtin_cpu_supports does not
// know it.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
         (eax & (1u << 4)) != 0;
}

bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx512() {
  return has_avx512vnni() && __builtin_cpu_supports("avx512bf16");
}

// AMX-BF16, AMX-TILE and AMX-INT8: bits 22, 24 and 25 of EDX in leaf 7. GCC 12's
// __builtin_cpu_supports does not know them.
bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kBits = 1u << 22 | 1u << 24 | 1u << 25;
  if (!has_avx512() || __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 ||
      (edx & kBits) != kBits) {
    return false;
  }
  // From asm/prctl.h of Linux 5.16 on, and the number of the tiles' state.
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

constexpr Isa kIsas[] = {Isa::kScalar,     Isa::kAvx2,   Isa::kAvxVnni,
                         Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAmx};

}  // namespace

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "unknown";
}

std::optional<Isa> isa_from_name(std::string_view name) {
  for (Isa isa : kIsas) {
    if (name == name_of(isa)) return isa;
  }
  return std::nullopt;
}

bool supports(Isa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return has_avx2();
    case Isa::kAvxVnni:
      return has_avxvnni();
    case Isa::kAvx512Vnni:
      return has_avx512vnni();
    case Isa::kAvx512:
      return has_avx512();
    case Isa::kAmx:
      return has_amx();
  }
  return false;
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (Isa isa : kIsas) {
    if (supports(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa best_isa() {
  // Asked once: cpuid ends a virtual machine's turn, which takes tens of microseconds.
  static const Isa best = supported_isas().back();
  return best;
}

}  // namespace quire
