#pragma once
// What the warps of the Hopper prefill attention kernel (hopper_kernel.cuh) share: the
// sizes of its stages in shared memory, and the barriers by which they are handed over.
#include <cuda.h>

#include <cstdint>

#include "ops/cuda/attention/prefill/hopper.cuh"
#include "ops/cuda/ptx/barriers.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"
#include "ops/cuda/ptx/warpgroup.cuh"

namespace quire::ops::cuda::hopper {

inline constexpr int kStages = 2;  // of keys, of values, of tiles' descriptions
inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupQueries = 64;
// Named barrier kFirstTurn + g: warpgroup g may issue its products.
inline constexpr int kFirstTurn = 1;

template <typename T, int kHeadDim, int kKeyCount, int kGroupCount>
struct Shape {
  using Element = T;
  static constexpr int kDim = kHeadDim;
  static constexpr int kKeys = kKeyCount;  // of one stage
  static constexpr int kGroups = kGroupCount;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kChunks = kDim / kSwizzleColumns;
  // 64 columns of a warpgroup's queries, and of a stage's keys or values.
  static constexpr int kQueryChunkBytes = kGroupQueries * kSwizzleRowBytes;
  static constexpr int kKeyChunkBytes = kKeys * kSwizzleRowBytes;
  static constexpr int kQueryBytes = kGroups * kChunks * kQueryChunkBytes;
  static constexpr int kStageBytes = kChunks * kKeyChunkBytes;
  // The next tile's queries come early where there is room for them.
  static constexpr int kQueryStages = kDim > 128 ? 1 : 2;
  static constexpr int kTileBytes = kQueryStages * kQueryBytes + 2 * kStages * kStageBytes;
  // The least that each role has room in; together no more than 65,536 of the block.
  static constexpr int kCopyRegisters = kDim > 128 ? 40 : 56;
  static constexpr int kComputeRegisters = kDim > 128 ? 232 : 224;
  static_assert((kCopyRegisters + kGroups * kComputeRegisters) * kGroupThreads <= 65536);
};

struct Maps {
  CUtensorMap q;
  CUtensorMap keys;
  CUtensorMap values;
};

// What follows the tiles in shared memory. The barriers of a stage: full once it may be read, empty
// once it may be written.
struct Control {
  uint64_t tiles_full[kStages];
  uint64_t tiles_empty[kStages];
  uint64_t queries_full[kStages];
  uint64_t queries_empty[kStages];
  uint64_t keys_full[kStages];
  uint64_t keys_empty[kStages];
  uint64_t values_full[kStages];
  uint64_t values_empty[kStages];
  uint64_t tail_full;  // a last stage of values, before its rows past the context are zeroed
  AttentionTile tiles[kStages];
};

// The place in a ring of stages: waits of its reader are for `phase`, of its writer for the other.
template <int kCount>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kCount) {
      stage = 0;
      phase ^= 1;
    }
  }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// Where a warpgroup's rows begin in a tile.
struct GroupPlace {
  int query;
  int head;
  __device__ GroupPlace(const AttentionSizes& sizes, int group)
      : query(sizes.tile_heads == 1 ? group * kGroupQueries : 0),
        head(sizes.tile_heads == 1 ? 0 : group) {}
};

template <typename S>
__device__ void init_barriers(Control& control) {
  constexpr int kWarps = S::kGroups * 4;  // that compute
  const auto init = [](uint64_t& barrier, int arrivals) {
    barrier_init(shared_address(&barrier), static_cast<uint32_t>(arrivals));
  };
  for (int i = 0; i < kStages; ++i) {
    init(control.tiles_full[i], 1);
    init(control.tiles_empty[i], kWarps + 2);  // and the warps of the values and queries
    init(control.queries_full[i], 1);
    init(control.queries_empty[i], kWarps);
    init(control.keys_full[i], 1);
    init(control.keys_empty[i], kWarps);
    init(control.values_full[i], 1);
    init(control.values_empty[i], kWarps);
  }
  init(control.tail_full, 1);
  fence_barrier_init();
}

__device__ __forceinline__ bool is_first_lane() {
  return threadIdx.x % 32 == 0;
}

// Warp 0 announces a tile.
__device__ __forceinline__ void send_tile(Control& control, Ring<kStages>& ring,
                                          const AttentionTile& tile) {
  barrier_wait(shared_address(&control.tiles_empty[ring.stage]), ring.phase ^ 1);
  if (is_first_lane()) {
    control.tiles[ring.stage] = tile;
    barrier_arrive(shared_address(&control.tiles_full[ring.stage]));
  }
  ring.advance();
}

// Every other warp receives it.
__device__ __forceinline__ AttentionTile receive_tile(Control& control, Ring<kStages>& ring) {
  barrier_wait(shared_address(&control.tiles_full[ring.stage]), ring.phase);
  const AttentionTile tile = control.tiles[ring.stage];
  __syncwarp();
  if (is_first_lane()) barrier_arrive(shared_address(&control.tiles_empty[ring.stage]));
  ring.advance();
  return tile;
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace quire::ops::cuda::hopper
