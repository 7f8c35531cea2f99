#pragma once
// The copying warpgroup of the Hopper prefill attention kernel (hopper_kernel.cuh): a
// warp each for keys, values and queries.
#include "core/launch.cuh"
#include "ops/cuda/attention/prefill/hopper_stages.cuh"
#include "ops/cuda/ptx/tma.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace quire::ops::cuda::hopper {

// The boxes of a stage of keys or values, one a lane.
template <typename S>
class StageCopy {
 public:
  __device__ StageCopy(const AttentionSizes& sizes, const CUtensorMap& map)
      : sizes_(sizes),
        map_(map),
        lane_(static_cast<int>(threadIdx.x) % 32),
        token_(lane_ / S::kChunks * sizes.box_rows),
        chunk_(lane_ % S::kChunks) {}

  __device__ void start_tile(const AttentionTile& tile) {
    table_ = sizes_.block_tables + tile.seq * sizes_.table_width;
    kv_head_ = tile.head / (sizes_.num_heads / sizes_.num_kv_heads);
    // Boxes past the context repeat its last one: there may be no page for them.
    last_token_ = (tile.context_len - 1) / sizes_.box_rows * sizes_.box_rows;
  }

  // The row of the cache where this lane's box of a block of keys begins.
  __device__ int row_of(int block) const {
    const int token = min(block * S::kKeys + token_, last_token_);
    const int page = token / sizes_.block_size;
    return (table_[page] * sizes_.num_kv_heads + kv_head_) * sizes_.block_size + token -
           page * sizes_.block_size;
  }

  // One lane announces the bytes; all copy.
  __device__ void copy(int row, uint32_t stage, uint32_t barrier) const {
    if (lane_ == 0) barrier_arrive_expecting(barrier, S::kStageBytes);
    __syncwarp();
    if (token_ < S::kKeys) {
      copy_box(stage + chunk_ * S::kKeyChunkBytes + token_ * kSwizzleRowBytes, map_,
               chunk_ * kSwizzleColumns, row, barrier);
    }
  }

 private:
  const AttentionSizes& sizes_;
  const CUtensorMap& map_;
  int lane_;
  int token_;
  int chunk_;
  const int32_t* table_ = nullptr;
  int kv_head_ = 0;
  int last_token_ = 0;
};

// Warp 0: takes tiles, copies their keys.
template <typename S>
__device__ void copy_keys(const AttentionSizes& sizes, const Maps& maps, Control& control,
                          uint32_t keys) {
  TileOrder<S::kKeys> order(sizes);
  StageCopy<S> copy(sizes, maps.keys);
  Ring<kStages> tile_ring;
  Ring<kStages> ring;
  int number = static_cast<int>(blockIdx.x);
  for (;;) {
    const AttentionTile tile = order.find(number);
    send_tile(control, tile_ring, tile);
    if (tile.rows == 0) break;
    int taken = 0;
    if (is_first_lane()) taken = atomicAdd(sizes.next_tile, 1);
    copy.start_tile(tile);
    for (int block = tile.end_block - 1; block >= tile.first_block; --block, ring.advance()) {
      const int row = copy.row_of(block);
      barrier_wait(shared_address(&control.keys_empty[ring.stage]), ring.phase ^ 1);
      copy.copy(row, keys + ring.stage * S::kStageBytes,
                shared_address(&control.keys_full[ring.stage]));
    }
    number = static_cast<int>(gridDim.x) + __shfl_sync(~0u, taken, 0);
  }
  release_next();
  // Every block that had a tile takes one number too many; the last of those ends the count.
  const int last = static_cast<int>(gridDim.x) + order.count() - 1;
  if (is_first_lane() && order.count() > 0 && number == last) *sizes.next_tile = 0;
}

// Warp 2: copies the queries.
template <typename S>
__device__ void copy_queries(const AttentionSizes& sizes, const Maps& maps, Control& control,
                             uint32_t queries) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = lane / S::kChunks;
  const GroupPlace place(sizes, group);
  const int column = place.head * S::kDim + lane % S::kChunks * kSwizzleColumns;
  Ring<kStages> tile_ring;
  Ring<S::kQueryStages> ring;
  for (;; ring.advance()) {
    const AttentionTile tile = receive_tile(control, tile_ring);
    if (tile.rows == 0) break;
    const uint32_t full = shared_address(&control.queries_full[ring.stage]);
    barrier_wait(shared_address(&control.queries_empty[ring.stage]), ring.phase ^ 1);
    if (lane == 0) barrier_arrive_expecting(full, S::kQueryBytes);
    __syncwarp();
    if (group < S::kGroups) {
      copy_box(queries + ring.stage * S::kQueryBytes + lane * S::kQueryChunkBytes, maps.q,
               tile.head * S::kDim + column, tile.q_row + place.query, full);
    }
  }
}

// Zeroes the rows of a stage of values from `first` on.
template <typename S>
__device__ void zero_rows(uint32_t stage, int first) {
  constexpr int kRowPieces = kSwizzleRowBytes / 16;
  const int pieces = (S::kKeys - first) * kRowPieces;
  for (int chunk = 0; chunk < S::kChunks; ++chunk) {
    const uint32_t rows = stage + chunk * S::kKeyChunkBytes + first * kSwizzleRowBytes;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < pieces; i += 32) {
      store_chunk(rows + 16 * i, make_uint4(0, 0, 0, 0));
    }
  }
}

// Warp 1: copies the values.
template <typename S>
__device__ void copy_values(const AttentionSizes& sizes, const Maps& maps, Control& control,
                            uint32_t values) {
  const uint32_t tail_full = shared_address(&control.tail_full);
  StageCopy<S> copy(sizes, maps.values);
  Ring<kStages> tile_ring;
  Ring<kStages> ring;
  uint32_t tail_parity = 0;
  for (;;) {
    const AttentionTile tile = receive_tile(control, tile_ring);
    if (tile.rows == 0) break;
    copy.start_tile(tile);
    for (int block = tile.end_block - 1; block >= tile.first_block; --block, ring.advance()) {
      const int row = copy.row_of(block);
      const uint32_t stage = values + ring.stage * S::kStageBytes;
      const uint32_t full = shared_address(&control.values_full[ring.stage]);
      barrier_wait(shared_address(&control.values_empty[ring.stage]), ring.phase ^ 1);
      const int rows = tile.context_len - block * S::kKeys;
      if (rows >= S::kKeys) {
        copy.copy(row, stage, full);
        continue;
      }
      copy.copy(row, stage, tail_full);
      barrier_wait(tail_full, tail_parity);
      tail_parity ^= 1;
      zero_rows<S>(stage, rows);
      fence_async_proxy();
      __syncwarp();
      if (is_first_lane()) barrier_arrive(full);
    }
  }
}

}  // namespace quire::ops::cuda::hopper

#endif  // __CUDA_ARCH_FEAT_SM90_ALL
