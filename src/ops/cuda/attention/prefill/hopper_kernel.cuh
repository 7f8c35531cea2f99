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
#include <cstdint>

#include "core/launch.cuh"
#include "ops/cuda/attention/prefill/hopper_copy.cuh"

namespace quire::ops::cuda::hopper {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// scores = queries * keys^T.
template <typename S>
__device__ __forceinline__ void issue_scores(float (&scores)[S::kKeys / 2], uint64_t queries,
                                             uint64_t keys) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < S::kDim / 16; ++k) {
    const int chunk = k / 4;
    const int step = k % 4 * kDescriptorStep;
    wgmma<typename S::Element, S::kKeys>(scores,
                                         queries + chunk * (S::kQueryChunkBytes >> 4) + step,
                                         keys + chunk * (S::kKeyChunkBytes >> 4) + step, k > 0);
  }
  wgmma_commit();
}

// out += weights * values.
template <typename S>
__device__ __forceinline__ void issue_sums(float (&out)[S::kDim / 2],
                                           const uint32_t (&weights)[S::kKeys / 4],
                                           uint64_t values) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < S::kKeys / 16; ++k) {
    wgmma<typename S::Element, S::kDim>(out, weights[4 * k], weights[4 * k + 1], weights[4 * k + 2],
                                        weights[4 * k + 3],
                                        values + (k * 16 * kSwizzleRowBytes >> 4));
  }
  wgmma_commit();
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
    wgmma_wait<0>();
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
        wgmma_wait<1>();
        pin(scores);
        release(control_.keys_empty, key_ring_);
        mask(tile, block, scores);
        softmax.add(scores, sizes_.scale_log2, correction);
        wgmma_wait<0>();
        pin(out);
        pin(weights);
        release(control_.values_empty, value_ring_);
        // Maxima seldom grow after the first blocks.
        if (!__all_sync(~0u, correction[0] == 1.0f && correction[1] == 1.0f)) {
          scale(out, correction);
        }
        to_weights(scores, weights);
      }
      release(control_.queries_empty, query_ring_);
      const AttentionTile next = receive_tile(control_, tile_ring_);
      if (next.rows == 0) break;
      block = next.end_block - 1;
      wait_full(control_.queries_full, query_ring_);
      issue_both(scores, out, weights);
      wgmma_wait<1>();
      pin(scores);
      release(control_.keys_empty, key_ring_);
      const OnlineSoftmax finished = softmax;
      mask(next, block, scores);
      softmax.reset();
      softmax.add(scores, sizes_.scale_log2, correction);
      wgmma_wait<0>();
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
    wgmma_wait<0>();
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
    named_barrier_wait(kFirstTurn + group_, 2 * kGroupThreads);
  }
  __device__ __forceinline__ void end_turn() const {
    named_barrier_arrive(kFirstTurn + (group_ + 1) % S::kGroups, 2 * kGroupThreads);
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
    barrier_wait(shared_address(&full[ring.stage]), ring.phase);
  }
  template <int kCount>
  __device__ __forceinline__ void release(uint64_t (&empty)[kStages], Ring<kCount>& ring) const {
    if (is_first_lane()) barrier_arrive(shared_address(&empty[ring.stage]));
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
      weights[i] = pair_of<typename S::Element>(scores[2 * i], scores[2 * i + 1]);
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
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

}  // namespace quire::ops::cuda::hopper
