#pragma once
// FlashAttention-2 (Dao 2023) over a paged cache with mma.sync: what a block of four warps does for
// one tile of rows of one KV head.
//
// A warp has its own rows of the queries, all keys of the tile and all elements of the head, so
// softmax needs nothing of other warps. Tiles of keys and values come with cp.async, and those of
// keys while the block works on values and the other way round: two blocks on a multiprocessor hide
// the rest. Keys are taken from the last to the first, so that masks are needed at the start (the
// diagonal) and, with a sliding window, at the end.
#include <type_traits>

#include "core/launch.cuh"
#include "ops/cuda/attention/prefill/flash_memory.cuh"
#include "ops/cuda/attention/prefill/flash_split.cuh"
#include "ops/cuda/math.cuh"
#include "ops/cuda/ptx/clusters.cuh"
#include "ops/cuda/ptx/convert.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/mma.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

namespace quire::ops::cuda {

template <typename Shape>
class FlashTile {
 public:
  __device__ __forceinline__ FlashTile(const FlashParams& params, const QueryTile& tile,
                                       int kv_head, char* shared)
      : params_(params),
        tile_(tile),
        memory_(params, tile, kv_head, shared),
        kv_head_(kv_head),
        scale_log2_(params.scale_log2),
        lane_(static_cast<int>(threadIdx.x % 32)) {
    if (kIsFp8 && params.key_scales != nullptr) scale_log2_ *= params.key_scales[kv_head];
  }

  __device__ __forceinline__ void run() {
    memory_.copy_queries();
    const int last_row = min(tile_.first_row + Shape::kRows, tile_.rows) - 1;
    const int last_position = tile_.position(params_.batch.group, last_row);
    const int first_position = tile_.position(params_.batch.group, tile_.first_row);
    // Whole tiles are masked only from these on.
    const int first_masked = first_position + 1;
    const int seen_by_all = first_visible(last_position, params_.sliding_window);
    const int begin = first_visible(first_position, params_.sliding_window) / kFlashKeys;
    begin_rows();

    int index = last_position / kFlashKeys - (kBlocks > 1 ? rank_in_cluster() : 0);
    uint32_t place = 0;
    if (index >= begin) {
      place = memory_.place_of(index);
      memory_.copy_keys(index, place);
      if constexpr (kIsFp8) memory_.copy_values(index, place);
      if constexpr (!std::is_same_v<T, Product>) {
        wait_for_all<2>();
        memory_.convert_queries();
      }
    }
    for (; index >= begin; index -= kBlocks) {
      const int next = index - kBlocks;
      const bool is_last = next < begin;
      const uint32_t next_place = is_last ? 0 : memory_.place_of(next);
      float scores[kRowTiles][kFlashKeys / 8][4] = {};
      if constexpr (!kIsFp8) {
        wait_for_all<0>();
        memory_.copy_values(index, place);
        add_scores(scores);
        wait_for_all<0>();
        if (!is_last) memory_.copy_keys(next, next_place);
      } else if constexpr (Shape::kSharesPlace) {
        wait_for_all<1>();
        memory_.convert_keys();
        __syncthreads();
        if (!is_last) memory_.copy_keys(next, next_place);
        add_scores(scores);
        is_last ? wait_for_all<0>() : wait_for_all<1>();
        memory_.convert_values();
        __syncthreads();
        if (!is_last) memory_.copy_values(next, next_place);
      } else {
        wait_for_all<0>();
        memory_.convert_keys();
        memory_.convert_values();
        __syncthreads();
        if (!is_last) {
          memory_.copy_keys(next, next_place);
          memory_.copy_values(next, next_place);
        }
        add_scores(scores);
      }
      const int first_key = index * kFlashKeys;
      if (first_key + kFlashKeys > first_masked || first_key < seen_by_all) {
        mask(scores, first_key);
      }
      soften(scores);
      add_values(scores);
      place = next_place;
    }
    if constexpr (kBlocks > 1) {
      wait_for_all<0>();
      merge_and_store();
    } else {
      store();
    }
  }

 private:
  using T = typename Shape::T;
  using Product = typename Shape::Product;
  using Partial = PartialResult<Shape::kRows, Shape::kHeadDim>;
  static constexpr int kHeadDim = Shape::kHeadDim;
  static constexpr bool kIsFp8 = Shape::kIsFp8;
  static constexpr int kRowTiles = Shape::kRowTiles;
  static constexpr int kBlocks = Shape::kBlocks;
  static constexpr int kRowBytes = Shape::kRowBytes;
  static_assert(kBlocks == 1 || Partial::kBytes <= Shape::kSharedBytes);

  // This thread's copies but for the last kPending, then everybody's; and all are done with what
  // they have read before.
  template <int kPending>
  __device__ __forceinline__ static void wait_for_all() {
    wait_for_copies<kPending>();
    __syncthreads();
  }

  // Rows of the accumulators: [row tile][0 or 8 further].
  __device__ __forceinline__ int row_in_warp(int row_tile, int half) const {
    return row_tile * 16 + half * 8 + lane_ / 4;
  }
  __device__ __forceinline__ void begin_rows() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        maxima_[t][half] = -INFINITY;
        denominators_[t][half] = 0.0f;
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums_[t][n][e] = 0.0f;
      }
    }
  }

  // scores += queries * keys^T.
  __device__ __forceinline__ void add_scores(float (&scores)[kRowTiles][kFlashKeys / 8][4]) const {
    // Matrices of the queries: rows, rows + 8, then the same of the next chunk. Of the keys: two
    // chunks of the first eight, then of the next eight.
    const int q_row = lane_ % 16;
    const int k_row = lane_ % 8 + lane_ / 16 * 8;
    const auto q_offset = static_cast<uint32_t>((lane_ / 16 ^ Shape::swizzle(q_row)) * 16);
    const auto k_offset = static_cast<uint32_t>((lane_ / 8 % 2 ^ Shape::swizzle(k_row)) * 16);
    const uint32_t q_base =
        memory_.queries() + static_cast<uint32_t>((memory_.warp_row() + q_row) * kRowBytes);
    const uint32_t k_base = memory_.keys() + static_cast<uint32_t>(k_row * kRowBytes);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        load_matrices(q[t], q_base + t * 16 * kRowBytes + Shape::pair_offset(q_offset, k));
      }
#pragma unroll
      for (int n = 0; n < kFlashKeys / 16; ++n) {
        uint32_t key[4];
        load_matrices(key, k_base + n * 16 * kRowBytes + Shape::pair_offset(k_offset, k));
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<Product>(scores[t][2 * n], q[t], key[0], key[1]);
          multiply_add<Product>(scores[t][2 * n + 1], q[t], key[2], key[3]);
        }
      }
    }
  }

  __device__ __forceinline__ void mask(float (&scores)[kRowTiles][kFlashKeys / 8][4],
                                       int first_key) const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Rows beyond the sequence's are as its last.
        const int row =
            min(tile_.first_row + memory_.warp_row() + row_in_warp(t, half), tile_.rows - 1);
        const int position = tile_.position(params_.batch.group, row);
        const int lane_key = first_key + lane_ % 4 * 2;
        const int high = position - lane_key;
        const int low = first_visible(position, params_.sliding_window) - lane_key;
#pragma unroll
        for (int n = 0; n < kFlashKeys / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int key = n * 8 + e;
            if (key > high || key < low) scores[t][n][half * 2 + e] = -INFINITY;
          }
        }
      }
    }
  }

  // Scores become probabilities times a factor of the row; what was summed up before is brought to
  // the same factor.
  __device__ __forceinline__ void soften(float (&scores)[kRowTiles][kFlashKeys / 8][4]) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = half * 2;
        float maximum = maxima_[t][half];
#pragma unroll
        for (int n = 0; n < kFlashKeys / 8; ++n) {
          maximum = fmaxf(maximum, fmaxf(scores[t][n][at], scores[t][n][at + 1]));
        }
        maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, 2));
        // A row that has seen no key yet keeps its sums at 0.
        const float offset = maximum == -INFINITY ? 0.0f : maximum * scale_log2_;
        const float correction = fast_exp2(maxima_[t][half] * scale_log2_ - offset);
        maxima_[t][half] = maximum;
        float denominator = denominators_[t][half] * correction;
#pragma unroll
        for (int n = 0; n < kFlashKeys / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[t][n][at + e];
            score = fast_exp2(fmaf(score, scale_log2_, -offset));
            denominator += score;
          }
        }
        denominators_[t][half] = denominator;
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          sums_[t][n][at] *= correction;
          sums_[t][n][at + 1] *= correction;
        }
      }
    }
  }

  // sums += probabilities * values.
  __device__ __forceinline__ void add_values(
      const float (&probabilities)[kRowTiles][kFlashKeys / 8][4]) {
    const int row = lane_ % 16;
    const auto offset = static_cast<uint32_t>((lane_ / 16 ^ Shape::swizzle(row)) * 16);
    const uint32_t base = memory_.values() + static_cast<uint32_t>(row * kRowBytes);
#pragma unroll
    for (int k = 0; k < kFlashKeys / 16; ++k) {
      // Accumulators of two times 8 keys are laid out as a matrix of 16.
      uint32_t p[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&from)[4] = probabilities[t][2 * k + i / 2];
          p[t][i] = pair_of<Product>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t value[4];
        load_matrices_transposed(value, base + k * 16 * kRowBytes + Shape::pair_offset(offset, n));
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<Product>(sums_[t][2 * n], p[t], value[0], value[1]);
          multiply_add<Product>(sums_[t][2 * n + 1], p[t], value[2], value[3]);
        }
      }
    }
  }

  __device__ __forceinline__ float row_denominator(int row_tile, int half) const {
    float denominator = denominators_[row_tile][half];
    denominator += __shfl_xor_sync(~0u, denominator, 1);
    return denominator + __shfl_xor_sync(~0u, denominator, 2);
  }

  __device__ __forceinline__ float value_scale() const {
    return kIsFp8 && params_.value_scales != nullptr ? params_.value_scales[kv_head_] : 1.0f;
  }

  // Puts the results into the warp's own rows of the queries, which are not needed any more, and
  // stores them from there in whole chunks.
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float factor = value_scale() / row_denominator(t, half);
        const int row = memory_.warp_row() + row_in_warp(t, half);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          const uint32_t pair =
              pair_of<T>(sums_[t][n][half * 2] * factor, sums_[t][n][half * 2 + 1] * factor);
          store_word(Shape::chunk_address(memory_.queries(), row, n) +
                         static_cast<uint32_t>(lane_ % 4 * 4),
                     pair);
        }
      }
    }
    __syncwarp();
#pragma unroll 4
    for (int i = 0; i < Shape::kWarpRows * Shape::kChunks / 32; ++i) {
      const int row = memory_.warp_row() + (lane_ + i * 32) / Shape::kChunks;
      const int chunk = (lane_ + i * 32) % Shape::kChunks;
      uint4* const out = memory_.out_chunk(row, chunk);
      if (out != nullptr) *out = load_chunk(Shape::chunk_address(memory_.queries(), row, chunk));
    }
  }

  // Each block of the cluster puts some rows of its results together. Shared memory is free.
  __device__ __forceinline__ void merge_and_store() const {
    const Partial partial(memory_.queries());
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = memory_.warp_row() + row_in_warp(t, half);
        const float denominator = row_denominator(t, half);
        if (lane_ % 4 == 0) partial.put_row(row, maxima_[t][half], denominator);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          partial.put_sums(row, n * 8 + lane_ % 4 * 2, sums_[t][n][half * 2],
                           sums_[t][n][half * 2 + 1]);
        }
      }
    }
    synchronize_cluster();
    constexpr int kBlockRows = Shape::kRows / kBlocks;
    for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * Shape::kChunks;
         i += kFlashThreads) {
      const int row = rank_in_cluster() * kBlockRows + i / Shape::kChunks;
      uint4* const out = memory_.out_chunk(row, i % Shape::kChunks);
      if (out == nullptr) continue;
      float values[8];
      partial.template merge<kBlocks>(row, i % Shape::kChunks * 8, scale_log2_, value_scale(),
                                      values);
      *out = {pair_of<T>(values[0], values[1]), pair_of<T>(values[2], values[3]),
              pair_of<T>(values[4], values[5]), pair_of<T>(values[6], values[7])};
    }
    synchronize_cluster();  // the others read this block's
  }

  const FlashParams& params_;
  const QueryTile& tile_;
  const FlashMemory<Shape> memory_;
  const int kv_head_;
  float scale_log2_;  // of the KV head's scores
  const int lane_;
  float maxima_[kRowTiles][2];
  float denominators_[kRowTiles][2];  // of this lane's columns
  float sums_[kRowTiles][kHeadDim / 8][4];
};

template <typename Shape>
__global__ void __launch_bounds__(kFlashThreads, Shape::kBlocksTogether)
    flash_kernel(const __grid_constant__ FlashParams params) {
  extern __shared__ __align__(128) char shared[];
  wait_for_previous();
  release_next();
  if constexpr (Shape::kBlocks > 1 && !kHasClusters) {
    __trap();  // rather than leave the outputs as they are
  } else {
    const uint32_t cluster = blockIdx.x / Shape::kBlocks;
    const uint32_t index = params.num_kv_heads.quotient(cluster);
    const QueryTile tile = find_tile<Shape::kRows>(params.batch, static_cast<int>(index));
    if (tile.first_row >= tile.rows) return;
    const auto kv_head = static_cast<int>(cluster - index * params.num_kv_heads.divisor);
    FlashTile<Shape>(params, tile, kv_head, shared).run();
  }
}

}  // namespace quire::ops::cuda
