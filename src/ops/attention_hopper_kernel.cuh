#pragma once
// Prefill attention for Hopper: one warpgroup copies tiles of queries, keys and values to shared
// memory while the others multiply, after FlashAttention-3 (Shah et al., 2024).
//
// A block takes tiles until there are none: of kGroups * 64 queries of one head, or of 64 queries
// of kGroups heads that share their keys. In the copying warpgroup, warp 0 takes the tiles and
// copies their keys, warp 1 their values, warp 2 their queries, each as far ahead as there is room;
// the cache is a tensor of rows (block, head, token) to the copy engine, and a page of it is some
// boxes. Each computing warpgroup has 64 rows of the tile. It issues the scores of the next block
// of keys, which may be the next tile's first, then the sum over the values of this one, and works
// on the next one's softmax while the latter runs; the warpgroups take turns at issuing, so that
// one's softmax runs during another's products.
//
// Values past the context's end are zeroed in shared memory, so that what the cache holds beyond
// it, NaN even, does not matter.
#include <cuda.h>

#include <cstdint>

#include "core/launch.cuh"
#include "ops/attention_hopper.cuh"

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
    init_barrier(shared_address(&barrier), arrivals);
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
  wait(shared_address(&control.tiles_empty[ring.stage]), ring.phase ^ 1);
  if (is_first_lane()) {
    control.tiles[ring.stage] = tile;
    arrive(shared_address(&control.tiles_full[ring.stage]));
  }
  ring.advance();
}

// Every other warp receives it.
__device__ __forceinline__ AttentionTile receive_tile(Control& control, Ring<kStages>& ring) {
  wait(shared_address(&control.tiles_full[ring.stage]), ring.phase);
  const AttentionTile tile = control.tiles[ring.stage];
  __syncwarp();
  if (is_first_lane()) arrive(shared_address(&control.tiles_empty[ring.stage]));
  ring.advance();
  return tile;
}

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
    if (lane_ == 0) arrive_expecting(barrier, S::kStageBytes);
    __syncwarp();
    if (token_ < S::kKeys) {
      copy_box(map_, chunk_ * kSwizzleColumns, row,
               stage + chunk_ * S::kKeyChunkBytes + token_ * kSwizzleRowBytes, barrier);
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
      wait(shared_address(&control.keys_empty[ring.stage]), ring.phase ^ 1);
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
    wait(shared_address(&control.queries_empty[ring.stage]), ring.phase ^ 1);
    if (lane == 0) arrive_expecting(full, S::kQueryBytes);
    __syncwarp();
    if (group < S::kGroups) {
      copy_box(maps.q, tile.head * S::kDim + column, tile.q_row + place.query,
               queries + ring.stage * S::kQueryBytes + lane * S::kQueryChunkBytes, full);
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
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(rows + 16 * i), "r"(0)
                   : "memory");
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
      wait(shared_address(&control.values_empty[ring.stage]), ring.phase ^ 1);
      const int rows = tile.context_len - block * S::kKeys;
      if (rows >= S::kKeys) {
        copy.copy(row, stage, full);
        continue;
      }
      copy.copy(row, stage, tail_full);
      wait(tail_full, tail_parity);
      tail_parity ^= 1;
      zero_rows<S>(stage, rows);
      fence_async_proxy();
      __syncwarp();
      if (is_first_lane()) arrive(full);
    }
  }
}

// scores = queries * keys^T.
template <typename S>
__device__ __forceinline__ void issue_scores(float (&scores)[S::kKeys / 2], uint64_t queries,
                                             uint64_t keys) {
  products_begin();
#pragma unroll
  for (int k = 0; k < S::kDim / 16; ++k) {
    const int chunk = k / 4;
    const int step = k % 4 * 2;  // 32 bytes of a row
    product<typename S::Element, S::kKeys>(scores,
                                           queries + chunk * (S::kQueryChunkBytes >> 4) + step,
                                           keys + chunk * (S::kKeyChunkBytes >> 4) + step, k > 0);
  }
  products_commit();
}

// out += weights * values.
template <typename S>
__device__ __forceinline__ void issue_sums(float (&out)[S::kDim / 2],
                                           const uint32_t (&weights)[S::kKeys / 4],
                                           uint64_t values) {
  products_begin();
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; ++k) {
    add_product<typename S::Element, S::kDim>(out, weights[4 * k], weights[4 * k + 1],
                                              weights[4 * k + 2], weights[4 * k + 3],
                                              values + (k * 16 * kSwizzleRowBytes >> 4));
  }
  products_commit();
}

template <typename S>
class Computer {
 public:
  __device__ Computer(const AttentionSizes& sizes, Control& control, uint32_t queries,
                      uint32_t keys, uint32_t values)
      : sizes_(sizes),
        control_(control),
        group_(static_cast<int>(threadIdx.x) / kGroupThreads - 1),
        place_(sizes, group_),
        queries_(tile_descriptor(queries + group_ * S::kChunks * S::kQueryChunkBytes)),
        keys_(tile_descriptor(keys)),
        values_(tile_descriptor(values, S::kKeyChunkBytes)) {}

  __device__ __forceinline__ void run() {
    float scores[S::kKeys / 2];
    float out[S::kDim / 2];
    uint32_t weights[S::kKeys / 4];
    float correction[2];
    OnlineSoftmax softmax;
    // The first warpgroup's first turn.
    if (group_ == S::kGroups - 1) end_turn();

    AttentionTile tile = receive_tile(control_, tile_ring_);
    if (tile.rows == 0) return;
    int block = tile.end_block - 1;
    wait_full(control_.queries_full, query_ring_);
    wait_full(control_.keys_full, key_ring_);
    begin_turn();
    issue_scores<S>(scores, queries_of_stage(), keys_of_stage());
    end_turn();
    products_wait<0>();
    pin(scores);
    release(control_.keys_empty, key_ring_);
    mask(tile, block, scores);
    softmax.reset();
    softmax.add(scores, sizes_.scale_log2, correction);
    to_weights(scores, weights);
    clear(out);

    // `weights` are those of `block` of `tile`; `out` is the sum over the blocks before it.
    for (;;) {
      while (--block >= tile.first_block) {
        issue_both(scores, out, weights);
        products_wait<1>();
        pin(scores);
        release(control_.keys_empty, key_ring_);
        mask(tile, block, scores);
        softmax.add(scores, sizes_.scale_log2, correction);
        products_wait<0>();
        pin(out);
        pin(weights);
        release(control_.values_empty, value_ring_);
        scale(out, correction);
        to_weights(scores, weights);
      }
      release(control_.queries_empty, query_ring_);
      const AttentionTile next = receive_tile(control_, tile_ring_);
      if (next.rows == 0) break;
      block = next.end_block - 1;
      wait_full(control_.queries_full, query_ring_);
      issue_both(scores, out, weights);
      products_wait<1>();
      pin(scores);
      release(control_.keys_empty, key_ring_);
      const OnlineSoftmax finished = softmax;
      mask(next, block, scores);
      softmax.reset();
      softmax.add(scores, sizes_.scale_log2, correction);
      products_wait<0>();
      pin(out);
      pin(weights);
      release(control_.values_empty, value_ring_);
      store(tile, finished, out);
      clear(out);
      to_weights(scores, weights);
      tile = next;
    }
    wait_full(control_.values_full, value_ring_);
    issue_sums<S>(out, weights, values_of_stage());
    products_wait<0>();
    pin(out);
    store(tile, softmax, out);
  }

 private:
  // In this warpgroup's turn: the scores of the next block, the sum over the values of this one.
  __device__ __forceinline__ void issue_both(float (&scores)[S::kKeys / 2],
                                             float (&out)[S::kDim / 2],
                                             const uint32_t (&weights)[S::kKeys / 4]) const {
    wait_full(control_.keys_full, key_ring_);
    begin_turn();
    issue_scores<S>(scores, queries_of_stage(), keys_of_stage());
    wait_full(control_.values_full, value_ring_);
    issue_sums<S>(out, weights, values_of_stage());
    end_turn();
  }

  __device__ __forceinline__ void begin_turn() const {
    named_wait(kFirstTurn + group_, 2 * kGroupThreads);
  }
  __device__ __forceinline__ void end_turn() const {
    named_arrive(kFirstTurn + (group_ + 1) % S::kGroups, 2 * kGroupThreads);
  }

  __device__ __forceinline__ uint64_t queries_of_stage() const {
    return queries_ + query_ring_.stage * (S::kQueryBytes >> 4);
  }
  __device__ __forceinline__ uint64_t keys_of_stage() const {
    return keys_ + key_ring_.stage * (S::kStageBytes >> 4);
  }
  __device__ __forceinline__ uint64_t values_of_stage() const {
    return values_ + value_ring_.stage * (S::kStageBytes >> 4);
  }

  template <int kCount>
  __device__ __forceinline__ void wait_full(uint64_t (&full)[kStages],
                                            const Ring<kCount>& ring) const {
    wait(shared_address(&full[ring.stage]), ring.phase);
  }
  template <int kCount>
  __device__ __forceinline__ void release(uint64_t (&empty)[kStages], Ring<kCount>& ring) const {
    if (is_first_lane()) arrive(shared_address(&empty[ring.stage]));
    ring.advance();
  }

  // Masks what some of this warpgroup's queries do not see of a block.
  __device__ __forceinline__ void mask(const AttentionTile& tile, int block,
                                       float (&scores)[S::kKeys / 2]) const {
    const int first = tile.first_position + place_.query;
    const int first_key = block * S::kKeys;
    const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
    const int position = first + thread / 32 * 16 + thread % 32 / 4;
    if (first_key + S::kKeys - 1 > first) {
      mask_scores<S::kKeys, false>(scores, first_key, position, 0);
    }
    if (first_key <= first + kGroupQueries - 1 - sizes_.sliding_window) {
      mask_scores<S::kKeys, true>(scores, first_key, position, sizes_.sliding_window);
    }
  }

  __device__ __forceinline__ static void to_weights(const float (&scores)[S::kKeys / 2],
                                                    uint32_t (&weights)[S::kKeys / 4]) {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i) {
      weights[i] = pack<typename S::Element>(scores[2 * i], scores[2 * i + 1]);
    }
  }

  __device__ __forceinline__ static void clear(float (&out)[S::kDim / 2]) {
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] = 0.0f;
  }

  __device__ __forceinline__ static void scale(float (&out)[S::kDim / 2],
                                               const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] *= factor[i % 4 / 2];
  }

  __device__ __forceinline__ void store(const AttentionTile& tile, const OnlineSoftmax& softmax,
                                        const float (&out)[S::kDim / 2]) const {
    const float factor[2] = {softmax.inverse_sum(0), softmax.inverse_sum(1)};
    const int64_t stride = static_cast<int64_t>(sizes_.num_heads) * S::kDim;
    auto* first = static_cast<typename S::Element*>(sizes_.out) +
                  (tile.q_row + place_.query) * stride + (tile.head + place_.head) * S::kDim;
    store_rows(out, factor, first, stride, tile.rows - place_.query);
  }

  const AttentionSizes& sizes_;
  Control& control_;
  int group_;
  GroupPlace place_;
  uint64_t queries_;
  uint64_t keys_;
  uint64_t values_;
  Ring<kStages> tile_ring_;
  Ring<S::kQueryStages> query_ring_;
  Ring<kStages> key_ring_;
  Ring<kStages> value_ring_;
};

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <typename S>
__global__ void __launch_bounds__(S::kThreads, 1)
    hopper_attention_kernel(const __grid_constant__ AttentionSizes sizes,
                            const __grid_constant__ Maps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char shared[];
  const uint32_t queries = (shared_address(shared) + 1023) / 1024 * 1024;
  const uint32_t keys = queries + S::kQueryStages * S::kQueryBytes;
  const uint32_t values = keys + kStages * S::kStageBytes;
  Control& control =
      *reinterpret_cast<Control*>(shared + (queries - shared_address(shared)) + S::kTileBytes);
  if (threadIdx.x == 0) {
    prefetch_map(maps.q);
    prefetch_map(maps.keys);
    prefetch_map(maps.values);
    init_barriers<S>(control);
  }
  __syncthreads();
  if (threadIdx.x < kGroupThreads) {
    shrink_registers<S::kCopyRegisters>();
    wait_for_previous();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (warp == 0) {
      copy_keys<S>(sizes, maps, control, keys);
    } else if (warp == 1) {
      copy_values<S>(sizes, maps, control, values);
    } else if (warp == 2) {
      copy_queries<S>(sizes, maps, control, queries);
    }
  } else {
    grow_registers<S::kComputeRegisters>();
    Computer<S>(sizes, control, queries, keys, values).run();
  }
#endif
}

}  // namespace quire::ops::cuda::hopper
