#pragma once
// Blocks of a cluster, which use each other's shared memory, from compute capability 9.0 on.
//
// PTX ISA: "Parallel Synchronization and Communication Instructions": barrier.cluster and mbarrier;
// "Data Movement and Conversion Instructions": mapa, ld, st and st.async.
#include <cstdint>

namespace quire::ops::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasClusters = true;
#else
inline constexpr bool kHasClusters = false;
#endif

// This block's.
__device__ __forceinline__ int rank_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of the cluster's blocks wait for each other, and see what the others have written.
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The address, in the cluster's shared memory, of what block `rank` holds at this block's
// `address`.
__device__ __forceinline__ uint32_t address_in_cluster(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// What follows takes addresses from address_in_cluster().

__device__ __forceinline__ float load_in_cluster(uint32_t address) {
  float value;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ float4 load_four_in_cluster(uint32_t address) {
  float4 values;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
               : "r"(address)
               : "memory");
  return values;
}

__device__ __forceinline__ void store_in_cluster(uint32_t address, const float (&values)[4]) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(values[0]),
               "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}
// Stores 16 bytes that arrive at `barrier`, which expects them, of the same block. This is the
// soonest way to tell that block, but each store takes some of the barrier's time.
__device__ __forceinline__ void store_in_cluster(uint32_t address, const float (&values)[4],
                                                 uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]), "r"(barrier)
      : "memory");
}

// Arrives at a barrier of any block: with release after stores that a waiting thread is to see,
// without it, which takes no time, where there were none.
__device__ __forceinline__ void barrier_release_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// As barrier_try_wait(), at a barrier of this block that other blocks release.
__device__ __forceinline__ bool barrier_try_acquire_in_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t over;
  asm volatile(
      "{\n.reg .pred over;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

}  // namespace quire::ops::cuda
