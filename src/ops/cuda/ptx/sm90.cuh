#pragma once
// Hopper's instructions (compute capability 9.0) by name: barriers in shared memory that count
// bytes, the bulk tensor copy engine, and matrix products of a warpgroup (4 warps) that take their
// operands from shared memory.
//
// Everything in shared memory is named by its 32-bit address (shared_address()). Tiles are rows of
// 64 16-bit elements, 128 bytes, in the 128-byte swizzle: 16-byte piece c of row r lies at piece
// c ^ (r % 8). Each 8 rows are one atom of 1024 bytes, aligned to that.
//
// Matrix products (from tile_descriptor() on) and the numbers of registers are sm_90a's alone:
// callable where __CUDA_ARCH_FEAT_SM90_ALL is defined. The rest is callable from 9.0 on.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace quire::ops::cuda::hopper {

inline constexpr int kSwizzleColumns = 64;
inline constexpr int kSwizzleRowBytes = 128;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A phase of a barrier ends after `arrivals` arrivals and all bytes that were announced for it.
__device__ __forceinline__ void init_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine; a __syncthreads() follows.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's own reads and writes of shared memory before what the copy engine and the
// matrix units do after the next barrier.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count)
               : "memory");
}

// Arrives, and lets the phase wait for `bytes` of copies besides.
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits for the end of the phase of this parity: the first phase's is 0, and waiting for parity 1
// of a fresh barrier returns at once.
__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Queues the copy of a box of a two-dimensional tensor; its bytes arrive at `barrier`.
__device__ __forceinline__ void copy_box(const CUtensorMap& map, int column, int row,
                                         uint32_t destination, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Named barriers 1 to 15 (0 is __syncthreads()): `threads` is the sum of those that wait and those
// that only arrive.
__device__ __forceinline__ void named_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

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

// Between the last write of a register that a product reads or adds to and that product.
__device__ __forceinline__ void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void products_wait() {
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

#define QUIRE_F4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define QUIRE_F16(d, i) \
  QUIRE_F4(d, i), QUIRE_F4(d, (i) + 4), QUIRE_F4(d, (i) + 8), QUIRE_F4(d, (i) + 12)
#define QUIRE_F32(d) QUIRE_F16(d, 0), QUIRE_F16(d, 16)
#define QUIRE_F64(d) QUIRE_F32(d), QUIRE_F16(d, 32), QUIRE_F16(d, 48)
#define QUIRE_F128(d) \
  QUIRE_F64(d), QUIRE_F16(d, 64), QUIRE_F16(d, 80), QUIRE_F16(d, 96), QUIRE_F16(d, 112)
#define QUIRE_R32                                                              \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20," \
  "%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define QUIRE_R64                                                                    \
  QUIRE_R32                                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51" \
  ",%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define QUIRE_R128                                                               \
  QUIRE_R64                                                                      \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"             \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"             \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// d = a * b^T (+ d where `accumulate`): a is [64, 16], b is [N, 16], both K-major in shared memory.
#define QUIRE_PRODUCT(types, shape, registers, outputs, a_operand, b_operand, accumulate_operand) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_operand                             \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned." shape ".f32." types " {" registers "}, " a_operand \
               ", " b_operand ", p, 1, 1, 0, 0;\n}\n"                                             \
               : outputs(d)                                                                       \
               : "l"(a), "l"(b), "r"(accumulate))

template <typename T, int kN>
__device__ __forceinline__ void product(float (&d)[kN / 2], uint64_t a, uint64_t b,
                                        int accumulate) {
  static_assert(kN == 64 || kN == 128);
  constexpr bool kBFloat16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (kN == 64 && kBFloat16) {
    QUIRE_PRODUCT("bf16.bf16", "m64n64k16", QUIRE_R32, QUIRE_F32, "%32", "%33", "%34");
  } else if constexpr (kN == 64) {
    QUIRE_PRODUCT("f16.f16", "m64n64k16", QUIRE_R32, QUIRE_F32, "%32", "%33", "%34");
  } else if constexpr (kBFloat16) {
    QUIRE_PRODUCT("bf16.bf16", "m64n128k16", QUIRE_R64, QUIRE_F64, "%64", "%65", "%66");
  } else {
    QUIRE_PRODUCT("f16.f16", "m64n128k16", QUIRE_R64, QUIRE_F64, "%64", "%65", "%66");
  }
}
#undef QUIRE_PRODUCT

// d += a * b: a is [64, 16] in registers, each warp's 16 rows laid out as mma.m16n8k16 has its
// first operand; b is [16, N], MN-major in shared memory.
#define QUIRE_PRODUCT(types, shape, registers, outputs, a_operand, b_operand)             \
  asm volatile(                                                                           \
      "{\n.reg .pred p;\nsetp.eq.b32 p, 0, 0;\n"                                          \
      "wgmma.mma_async.sync.aligned." shape ".f32." types " {" registers "}, {" a_operand \
      "}, " b_operand ", p, 1, 1, 1;\n}\n"                                                \
      : outputs(d)                                                                        \
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b))

template <typename T, int kN>
__device__ __forceinline__ void add_product(float (&d)[kN / 2], uint32_t a0, uint32_t a1,
                                            uint32_t a2, uint32_t a3, uint64_t b) {
  static_assert(kN == 64 || kN == 128 || kN == 256);
  constexpr bool kBFloat16 = std::is_same_v<T, __nv_bfloat16>;
  if constexpr (kN == 64 && kBFloat16) {
    QUIRE_PRODUCT("bf16.bf16", "m64n64k16", QUIRE_R32, QUIRE_F32, "%32,%33,%34,%35", "%36");
  } else if constexpr (kN == 64) {
    QUIRE_PRODUCT("f16.f16", "m64n64k16", QUIRE_R32, QUIRE_F32, "%32,%33,%34,%35", "%36");
  } else if constexpr (kN == 256 && kBFloat16) {
    QUIRE_PRODUCT("bf16.bf16", "m64n256k16", QUIRE_R128, QUIRE_F128, "%128,%129,%130,%131", "%132");
  } else if constexpr (kN == 256) {
    QUIRE_PRODUCT("f16.f16", "m64n256k16", QUIRE_R128, QUIRE_F128, "%128,%129,%130,%131", "%132");
  } else if constexpr (kBFloat16) {
    QUIRE_PRODUCT("bf16.bf16", "m64n128k16", QUIRE_R64, QUIRE_F64, "%64,%65,%66,%67", "%68");
  } else {
    QUIRE_PRODUCT("f16.f16", "m64n128k16", QUIRE_R64, QUIRE_F64, "%64,%65,%66,%67", "%68");
  }
}
#undef QUIRE_PRODUCT
#undef QUIRE_R128
#undef QUIRE_R64
#undef QUIRE_R32
#undef QUIRE_F128
#undef QUIRE_F64
#undef QUIRE_F32
#undef QUIRE_F16
#undef QUIRE_F4

}  // namespace quire::ops::cuda::hopper
