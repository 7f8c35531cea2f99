#pragma once
// Shared memory by its 32-bit addresses: the conversion to one, and loads and stores of up to 16
// bytes. Addresses are multiples of the bytes that are moved.
//
// PTX ISA: "Data Movement and Conversion Instructions", ld and st.
#include <cstdint>

namespace quire::ops::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes.
__device__ __forceinline__ uint4 load_chunk(uint32_t address) {
  uint4 chunk;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
               : "r"(address)
               : "memory");
  return chunk;
}
// Leaves the chunk as it is where the condition is false.
__device__ __forceinline__ void load_chunk_if(bool condition, uint4& chunk, uint32_t address) {
  asm volatile(
      "{\n.reg .pred condition;\n"
      "setp.ne.u32 condition, %5, 0;\n"
      "@condition ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(chunk.x), "+r"(chunk.y), "+r"(chunk.z), "+r"(chunk.w)
      : "r"(address), "r"(static_cast<uint32_t>(condition))
      : "memory");
}
__device__ __forceinline__ void store_chunk(uint32_t address, uint4 chunk) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(chunk.x),
               "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

__device__ __forceinline__ void load_floats(uint32_t address, float (&values)[4]) {
  const uint4 chunk = load_chunk(address);
  values[0] = __uint_as_float(chunk.x);
  values[1] = __uint_as_float(chunk.y);
  values[2] = __uint_as_float(chunk.z);
  values[3] = __uint_as_float(chunk.w);
}
__device__ __forceinline__ void store_floats(uint32_t address, const float (&values)[4]) {
  store_chunk(address, make_uint4(__float_as_uint(values[0]), __float_as_uint(values[1]),
                                  __float_as_uint(values[2]), __float_as_uint(values[3])));
}

// 8 bytes.
__device__ __forceinline__ uint2 load_pair(uint32_t address) {
  uint2 pair;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
               : "=r"(pair.x), "=r"(pair.y)
               : "r"(address)
               : "memory");
  return pair;
}
__device__ __forceinline__ void store_pair(uint32_t address, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second)
               : "memory");
}

// 4 bytes.
__device__ __forceinline__ float load_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_word(uint32_t address, uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(word) : "memory");
}

}  // namespace quire::ops::cuda
