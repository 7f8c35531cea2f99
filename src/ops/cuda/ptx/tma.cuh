#pragma once
// The copy engine (tensor memory accelerator, TMA) of compute capability 9.0: one thread queues a
// copy from device memory to shared memory, whose bytes arrive at a barrier (barriers.cuh).
//
// PTX ISA: "Data Movement and Conversion Instructions: Bulk copy" and "Tensor copy".
#include <cuda.h>

#include <cstdint>

namespace quire::ops::cuda {

// Copies `bytes` bytes. Addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// The same, with a policy of the L2 cache.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
// The policy for bytes that are read once: they leave the L2 cache before all others.
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// Brings memory into the L2 cache.
__device__ __forceinline__ void prefetch_bulk(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the map's box at (column, row) of a matrix. What lies outside of the matrix becomes zero.
__device__ __forceinline__ void copy_box(uint32_t to, const CUtensorMap& map, int column, int row,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same, to this address in each block of the cluster whose rank's bit is set; the bytes arrive
// at the barrier at this address in the same blocks.
__device__ __forceinline__ void copy_box_to_cluster(uint32_t to, const CUtensorMap& map, int column,
                                                    int row, uint32_t barrier, uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(ranks)
      : "memory");
}

}  // namespace quire::ops::cuda
