#pragma once
// What a warpgroup (4 warps) does together on sm_90a: matrix products (wgmma) with operands in
// shared memory, and handing registers from one warpgroup to another. Callable where
// __CUDA_ARCH_FEAT_SM90_ALL is defined.
//
// Tiles in shared memory are rows of 64 16-bit elements or 128 float8, 128 bytes, in the 128-byte
// swizzle of tensor copies: 16-byte piece c of row r lies at piece c ^ (r % 8). Each 8 rows are one
// atom of 1024 bytes, aligned to that.
//
// Thread t of the warpgroup holds of a 64 x N accumulator at 4 j + 2 half + e: row
// 16 (t / 32) + t % 32 / 4 + 8 half, column 8 j + 2 (t % 4) + e.
//
// PTX ISA: "Asynchronous Warpgroup Level Matrix Instructions"; "Miscellaneous Instructions",
// setmaxnreg.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace quire::ops::cuda {

inline constexpr int kSwizzleColumns = 64;
inline constexpr int kSwizzleRowBytes = 128;

// The descriptor of a swizzled tile. Where the product runs along the row (K-major), only the
// distance between atoms of 8 rows counts, 1024 bytes. Where it runs along the rows (MN-major),
// `chunk_bytes` is the distance from 64 columns to the next 64.
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t address, uint32_t chunk_bytes = 16) {
  constexpr uint64_t kAtomBytes = 1024;
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) |
         (static_cast<uint64_t>(chunk_bytes >> 4) << 16) | ((kAtomBytes >> 4) << 32) |
         (kSwizzle128 << 62);
}

// Added to the descriptor of a K-major tile: the next 16 elements of its rows, or 32 float8.
inline constexpr int kDescriptorStep = 16 * 2 >> 4;

// Between the last write of a register that a product reads or adds to and that product.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving uses of registers across the asynchronous products.
template <int kCount>
__device__ __forceinline__ void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
__device__ __forceinline__ void pin(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// Inline assembly names each register of the accumulator, as an operand ("+f"(d[0]), ...) and by
// its number (%0, ...); the operands after it are numbered on from there.
#define QUIRE_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define QUIRE_D8(i) QUIRE_D4(i), QUIRE_D4((i) + 4)
#define QUIRE_D16(i) QUIRE_D8(i), QUIRE_D8((i) + 8)
#define QUIRE_D32(i) QUIRE_D16(i), QUIRE_D16((i) + 16)
#define QUIRE_D64(i) QUIRE_D32(i), QUIRE_D32((i) + 32)
#define QUIRE_D128(i) QUIRE_D64(i), QUIRE_D64((i) + 64)
#define QUIRE_NUMBERS4 "%0,%1,%2,%3"
#define QUIRE_NUMBERS8 QUIRE_NUMBERS4 ",%4,%5,%6,%7"
#define QUIRE_NUMBERS16 QUIRE_NUMBERS8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define QUIRE_NUMBERS32 \
  QUIRE_NUMBERS16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QUIRE_NUMBERS64                                                                          \
  QUIRE_NUMBERS32                                                                                \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54" \
  ",%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QUIRE_NUMBERS128                                                                         \
  QUIRE_NUMBERS64                                                                                \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86" \
  ",%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107" \
  ",%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125"   \
  ",%126,%127"

#define QUIRE_WGMMA_OF_TYPE(depth_and_type, type, n, registers, accumulate, operands, ...) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate                              \
               ", 0;\n"                                                                    \
               "wgmma.mma_async.sync.aligned.m64n" #n depth_and_type "." type              \
               " {" QUIRE_NUMBERS##registers "}, " operands ";\n}\n"                       \
               : QUIRE_D##registers(0)                                                     \
               : __VA_ARGS__)
#define QUIRE_WGMMA(n, ...)                                        \
  if constexpr (kN == n) {                                         \
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {              \
      QUIRE_WGMMA_OF_TYPE("k16.f32.bf16", "bf16", n, __VA_ARGS__); \
    } else {                                                       \
      QUIRE_WGMMA_OF_TYPE("k16.f32.f16", "f16", n, __VA_ARGS__);   \
    }                                                              \
  }
#define QUIRE_WGMMA_FLOAT8(n, ...)                               \
  if constexpr (kN == n) {                                       \
    QUIRE_WGMMA_OF_TYPE("k32.f32.e4m3", "e4m3", n, __VA_ARGS__); \
  }

// d = a * b^T, plus d where `accumulate` is not 0: a is [64, 16], b is [kN, 16] of T, both K-major
// in shared memory.
template <typename T, int kN>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], uint64_t a, uint64_t b, int accumulate) {
  static_assert(kN == 8 || kN == 16 || kN == 32 || kN == 64 || kN == 128);
#define QUIRE_INPUTS "l"(a), "l"(b), "r"(accumulate)
  QUIRE_WGMMA(8, 4, "%6", "%4, %5, p, 1, 1, 0, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(16, 8, "%10", "%8, %9, p, 1, 1, 0, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(32, 16, "%18", "%16, %17, p, 1, 1, 0, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(64, 32, "%34", "%32, %33, p, 1, 1, 0, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(128, 64, "%66", "%64, %65, p, 1, 1, 0, 0", QUIRE_INPUTS)
#undef QUIRE_INPUTS
}

// d = a * b^T, plus d where `accumulate` is not 0: a is [64, 32], b is [kN, 32] of float8 e4m3,
// both K-major in shared memory. The sums keep but 13 bits behind the point of the greatest term,
// so that no more than a few of these should add up in one accumulator.
template <int kN>
__device__ __forceinline__ void wgmma_float8(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                             int accumulate) {
  static_assert(kN == 8 || kN == 16 || kN == 32 || kN == 64 || kN == 128);
#define QUIRE_INPUTS "l"(a), "l"(b), "r"(accumulate)
  QUIRE_WGMMA_FLOAT8(8, 4, "%6", "%4, %5, p, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA_FLOAT8(16, 8, "%10", "%8, %9, p, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA_FLOAT8(32, 16, "%18", "%16, %17, p, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA_FLOAT8(64, 32, "%34", "%32, %33, p, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA_FLOAT8(128, 64, "%66", "%64, %65, p, 1, 1", QUIRE_INPUTS)
#undef QUIRE_INPUTS
}

// d += a * b: a is [64, 16] in registers, each warp's 16 rows laid out as the first operand of
// multiply_add() (mma.cuh); b is [16, kN] of T, MN-major in shared memory.
template <typename T, int kN>
__device__ __forceinline__ void wgmma(float (&d)[kN / 2], uint32_t a0, uint32_t a1, uint32_t a2,
                                      uint32_t a3, uint64_t b) {
  static_assert(kN == 64 || kN == 128 || kN == 256);
#define QUIRE_INPUTS "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b)
  QUIRE_WGMMA(64, 32, "1", "{%32, %33, %34, %35}, %36, p, 1, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA(128, 64, "1", "{%64, %65, %66, %67}, %68, p, 1, 1, 1", QUIRE_INPUTS)
  QUIRE_WGMMA(256, 128, "1", "{%128, %129, %130, %131}, %132, p, 1, 1, 1", QUIRE_INPUTS)
#undef QUIRE_INPUTS
}

// d = a * b^T, plus d where `accumulate` is not 0: a is [64, 16] in registers, laid out the same
// way; b is [kN, 16] of T, K-major in shared memory.
template <typename T, int kN>
__device__ __forceinline__ void wgmma_rows(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b,
                                           int accumulate) {
  static_assert(kN == 8 || kN == 16 || kN == 64 || kN == 128);
#define QUIRE_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)
  QUIRE_WGMMA(8, 4, "%9", "{%4, %5, %6, %7}, %8, p, 1, 1, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(16, 8, "%13", "{%8, %9, %10, %11}, %12, p, 1, 1, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(64, 32, "%37", "{%32, %33, %34, %35}, %36, p, 1, 1, 0", QUIRE_INPUTS)
  QUIRE_WGMMA(128, 64, "%69", "{%64, %65, %66, %67}, %68, p, 1, 1, 0", QUIRE_INPUTS)
#undef QUIRE_INPUTS
}
#undef QUIRE_WGMMA_FLOAT8
#undef QUIRE_WGMMA
#undef QUIRE_WGMMA_OF_TYPE
#undef QUIRE_NUMBERS128
#undef QUIRE_NUMBERS64
#undef QUIRE_NUMBERS32
#undef QUIRE_NUMBERS16
#undef QUIRE_NUMBERS8
#undef QUIRE_NUMBERS4
#undef QUIRE_D128
#undef QUIRE_D64
#undef QUIRE_D32
#undef QUIRE_D16
#undef QUIRE_D8
#undef QUIRE_D4

// How many registers each thread of this warpgroup has from now on, a multiple of 8. Growing waits
// until the block's other warpgroups have given enough up.
template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace quire::ops::cuda
