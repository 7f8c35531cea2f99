#pragma once
// The tensor core and copy instructions of compute capability 8.0 that kernels are built from, each
// as a function: cp.async, ldmatrix, mma.sync m16n8k16.
//
// Shared memory is addressed by 32-bit addresses. In a warp, lane l has of a 16 x 8 accumulator the
// rows l / 4 and l / 4 + 8, columns l % 4 * 2 and the next one: {row, row, row + 8, row + 8}.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace quire::ops::cuda {

__device__ __forceinline__ uint32_t to_shared(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes in the background, or writes zeros where `present` is false; `from` must be a
// valid address in any case.
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// sum += a * b: a is 16 x 16, b is 16 x 8 of T, sum is 16 x 8 of float.
template <typename T>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&sum)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&sum)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two elements in a register, the first in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t pair_of(float low, float high);
template <>
__device__ __forceinline__ uint32_t pair_of<__nv_bfloat16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ uint32_t pair_of<__half>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Four float8 e4m3 as float16, which holds all of their values.
__device__ __forceinline__ uint2 halves_of_e4m3(uint32_t four) {
  uint2 halves;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("{\n.reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(halves.x), "=r"(halves.y)
      : "r"(four));
#else
  // Exponent and mantissa, put where float16 has its own, are the value divided by 2^8; for
  // subnormal numbers too.
  const auto scaled = [](uint32_t spread) {
    const uint32_t bits = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
    uint32_t pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits), "r"(0x5c005c00u));
    return pair;
  };
  halves.x = scaled(__byte_perm(four, 0, 0x1404));
  halves.y = scaled(__byte_perm(four, 0, 0x3424));
#endif
  return halves;
}

__device__ __forceinline__ uint4 load_chunk(uint32_t address) {
  uint4 chunk;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
               : "r"(address)
               : "memory");
  return chunk;
}
__device__ __forceinline__ void store_chunk(uint32_t address, uint4 chunk) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.x),
               "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

}  // namespace quire::ops::cuda
