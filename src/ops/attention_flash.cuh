#pragma once
// FlashAttention-2 (Dao 2023) over a paged cache with mma.sync: what a block of four warps does for
// one tile of rows of one KV head.
//
// A warp has its own rows of the queries, all keys of the tile and all elements of the head, so
// softmax needs nothing of other warps. Tiles of keys and values come with cp.async, and those of
// keys while the block works on values and the other way round: two blocks on a multiprocessor hide
// the rest. Keys are taken from the last to the first, so that masks are needed at the start (the
// diagonal) and, with a sliding window, at the end.
//
// Shared memory holds rows of 16-byte chunks, swizzled so that the eight rows that ldmatrix reads
// lie in different banks: the chunk's number is xored with the row's.
#include <type_traits>

#include "core/launch.cuh"
#include "ops/attention_tiles.cuh"
#include "ops/mma.cuh"

namespace quire::ops::cuda {

struct FlashParams {
  TiledBatch batch;
  const void* q;
  int64_t q_stride;
  void* out;
  int num_heads;
  float scale_log2;  // scale * log2(e): softmax is computed with powers of 2
  int64_t sliding_window;
  const char* keys;
  const char* values;
  FastDivisor block_size;
  FastDivisor num_kv_heads;
};

inline constexpr int kFlashWarps = 4;
inline constexpr int kFlashThreads = kFlashWarps * 32;
inline constexpr int kFlashKeys = 64;  // of a tile
// Keys that are side by side in memory: a divisor of every block size.
inline constexpr int kKeysTogether = 16;

// kIsFp8: the cache is float8 e4m3, and is converted to T in shared memory.
template <typename T, int kHeadDim, bool kIsFp8>
class FlashTile {
 public:
  // 32 rows a warp where their sums fit into registers: ldmatrix reads shared memory at 128 bytes a
  // cycle, so that with 16 rows a warp it takes longer than the products do.
  static constexpr int kRowTiles = kHeadDim <= 128 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kFlashWarps * kWarpRows;

  // Shared memory: queries, then keys and values; or the tile of float8 that is converted, then
  // keys and values as they come.
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kTileBytes = kFlashKeys * kRowBytes;
  static constexpr int kCacheRowBytes = kIsFp8 ? kHeadDim : kRowBytes;
  static constexpr int kCacheTileBytes = kFlashKeys * kCacheRowBytes;
  static constexpr int kSharedBytes =
      kRows * kRowBytes + (kIsFp8 ? kTileBytes : 0) + 2 * kCacheTileBytes;

  __device__ __forceinline__ FlashTile(const FlashParams& params, const QueryTile& tile,
                                       int kv_head, char* shared)
      : params_(params),
        tile_(tile),
        kv_head_(kv_head),
        lane_(static_cast<int>(threadIdx.x % 32)),
        queries_(to_shared(shared)),
        converted_(queries_ + kRows * kRowBytes),
        keys_(converted_ + (kIsFp8 ? kTileBytes : 0)),
        values_(keys_ + kCacheTileBytes) {}

  __device__ __forceinline__ void run() {
    copy_queries();
    const int last_row = min(tile_.first_row + kRows, tile_.rows) - 1;
    const int last_position = tile_.position(params_.batch.group, last_row);
    const int first_position = tile_.position(params_.batch.group, tile_.first_row);
    // Whole tiles are masked only from these on.
    const int first_masked = first_position + 1;
    const int seen_by_all = first_visible(last_position, params_.sliding_window);
    const int begin = first_visible(first_position, params_.sliding_window) / kFlashKeys;
    begin_rows(last_row);

    int index = last_position / kFlashKeys;
    int64_t place = place_of(index);
    copy_tile(params_.keys, keys_, index, place);
    commit_copies();
    if constexpr (kIsFp8) {
      copy_tile(params_.values, values_, index, place);
      commit_copies();
    }
    for (; index >= begin; --index) {
      const int64_t next_place = index > begin ? place_of(index - 1) : 0;
      float scores[kRowTiles][kFlashKeys / 8][4] = {};
      if constexpr (kIsFp8) {
        wait_for_copies<1>();
        __syncthreads();
        convert(keys_);
        __syncthreads();
        if (index > begin) copy_tile(params_.keys, keys_, index - 1, next_place);
        commit_copies();
        add_scores(scores, converted_);
        wait_for_copies<1>();
        __syncthreads();
        convert(values_);
        __syncthreads();
        if (index > begin) copy_tile(params_.values, values_, index - 1, next_place);
        commit_copies();
      } else {
        wait_for_copies<0>();
        __syncthreads();
        copy_tile(params_.values, values_, index, place);
        commit_copies();
        add_scores(scores, keys_);
        wait_for_copies<0>();
        __syncthreads();
        if (index > begin) copy_tile(params_.keys, keys_, index - 1, next_place);
        commit_copies();
      }
      const int first_key = index * kFlashKeys;
      if (first_key + kFlashKeys > first_masked || first_key < seen_by_all) {
        mask(scores, first_key);
      }
      soften(scores);
      add_values(scores, kIsFp8 ? converted_ : values_);
      place = next_place;
    }
    store();
  }

 private:
  static constexpr int kChunks = kRowBytes / 16;

  // What the chunk's number is xored with. Rows of 12 chunks begin in one of two halves of the
  // banks in turn, so the pair's number does.
  __device__ __forceinline__ static int swizzle(int row) {
    return kHeadDim % 64 == 0 ? row % 8 : row / 2 % 4;
  }
  __device__ __forceinline__ static uint32_t chunk_address(uint32_t base, int row, int chunk) {
    return base + static_cast<uint32_t>(row * kRowBytes + (chunk ^ swizzle(row)) * 16);
  }
  // From the swizzled offset of chunk 0 or 1 in its row to that of the nth pair of chunks.
  __device__ __forceinline__ static uint32_t pair_offset(uint32_t offset, int nth) {
    if constexpr (kHeadDim % 64 == 0) return offset ^ static_cast<uint32_t>(nth * 32);
    return (offset ^ static_cast<uint32_t>(nth % 2 * 32)) + static_cast<uint32_t>(nth / 2 * 64);
  }

  // Rows beyond the sequence's are zeros.
  __device__ __forceinline__ void copy_queries() const {
    static_assert(kRows * kChunks % kFlashThreads == 0);
    const T* const q = static_cast<const T*>(params_.q);
    const auto group = static_cast<int>(params_.batch.group.divisor);
#pragma unroll 4
    for (int i = 0; i < kRows * kChunks / kFlashThreads; ++i) {
      const int index = static_cast<int>(threadIdx.x) + i * kFlashThreads;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const bool present = tile_.first_row + row < tile_.rows;
      const int of_sequence = present ? tile_.first_row + row : 0;
      const auto query = static_cast<int>(params_.batch.group.quotient(of_sequence));
      const int head = kv_head_ * group + of_sequence - query * group;
      copy_async(chunk_address(queries_, row, chunk),
                 q + (tile_.first_query + query) * params_.q_stride + head * kHeadDim + chunk * 8,
                 present);
    }
  }

  // Lane l: where the keys l % 4 * kKeysTogether of a tile are in the cache, in bytes.
  __device__ __forceinline__ int64_t place_of(int index) const {
    static_assert(kFlashKeys / kKeysTogether == 4);
    const int key = index * kFlashKeys + lane_ % 4 * kKeysTogether;
    if (key >= tile_.context_len) return 0;
    const auto nth = static_cast<int>(params_.block_size.quotient(key));
    const auto block_size = static_cast<int>(params_.block_size.divisor);
    const int64_t block = tile_.block_table[nth];
    const int64_t head_block = block * static_cast<int>(params_.num_kv_heads.divisor) + kv_head_;
    return (head_block * block_size + key - nth * block_size) * kCacheRowBytes;
  }

  // Keys beyond the context are zeros: whatever else is in the cache might not be finite.
  __device__ __forceinline__ void copy_tile(const char* from, uint32_t to, int index,
                                            int64_t place) const {
    constexpr int kCacheChunks = kCacheRowBytes / 16;
    static_assert(kFlashKeys * kCacheChunks % kFlashThreads == 0);
    const int keys_left = tile_.context_len - index * kFlashKeys;
#pragma unroll
    for (int i = 0; i < kFlashKeys * kCacheChunks / kFlashThreads; ++i) {
      const int nth = static_cast<int>(threadIdx.x) + i * kFlashThreads;
      const int row = nth / kCacheChunks;
      const int chunk = nth % kCacheChunks;
      const char* const source = from + __shfl_sync(~0u, place, row / kKeysTogether) +
                                 row % kKeysTogether * kCacheRowBytes + chunk * 16;
      const uint32_t target =
          kIsFp8 ? to + static_cast<uint32_t>(nth * 16) : chunk_address(to, row, chunk);
      copy_async(target, source, row < keys_left);
    }
  }

  // A tile of float8 to T, which holds all of its values.
  __device__ __forceinline__ void convert(uint32_t from) const {
    constexpr int kUnits = kFlashKeys * kChunks;
#pragma unroll 4
    for (int i = 0; i < kUnits / kFlashThreads; ++i) {
      const int nth = static_cast<int>(threadIdx.x) + i * kFlashThreads;
      uint32_t in[2];
      asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                   : "=r"(in[0]), "=r"(in[1])
                   : "r"(from + static_cast<uint32_t>(nth * 8))
                   : "memory");
      uint32_t out[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) out[k] = wide_pair(in[k / 2], k % 2);
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(
                       chunk_address(converted_, nth / kChunks, nth % kChunks)),
                   "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3])
                   : "memory");
    }
  }
  // The lower or upper two of four float8. Their exponent and mantissa, put where T has its own,
  // are their value times a power of two, for subnormal numbers too.
  __device__ __forceinline__ static uint32_t wide_pair(uint32_t four, int half) {
    const uint32_t spread = __byte_perm(four, 0, half == 0 ? 0x1404 : 0x3424);
    constexpr bool kIsBFloat16 = std::is_same_v<T, __nv_bfloat16>;
    const uint32_t magnitude = (spread & 0x7f007f00u) >> (kIsBFloat16 ? 4 : 1);
    const uint32_t bits = (spread & 0x80008000u) | magnitude;
    uint32_t pair;
    if constexpr (kIsBFloat16) {  // 2^120; fma, as compute capability 8.0 has no mul.bf16x2
      asm("fma.rn.bf16x2 %0, %1, %2, %3;"
          : "=r"(pair)
          : "r"(bits), "r"(0x7b807b80u), "r"(0x80008000u));
    } else {  // 2^8
      asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits), "r"(0x5c005c00u));
    }
    return pair;
  }

  // Rows of the accumulators: [row tile][0 or 8 further].
  __device__ __forceinline__ int row_in_warp(int row_tile, int half) const {
    return row_tile * 16 + half * 8 + lane_ / 4;
  }
  __device__ __forceinline__ int warp_row() const {
    return static_cast<int>(threadIdx.x / 32) * kWarpRows;
  }

  __device__ __forceinline__ void begin_rows(int last_row) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = tile_.first_row + warp_row() + row_in_warp(t, half);
        positions_[t][half] = tile_.position(params_.batch.group, min(row, last_row));
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
  __device__ __forceinline__ void add_scores(float (&scores)[kRowTiles][kFlashKeys / 8][4],
                                             uint32_t keys) const {
    // Matrices of the queries: rows, rows + 8, then the same of the next chunk. Of the keys: two
    // chunks of the first eight, then of the next eight.
    const int q_row = lane_ % 16;
    const int k_row = lane_ % 8 + lane_ / 16 * 8;
    const auto q_offset = static_cast<uint32_t>((lane_ / 16 ^ swizzle(q_row)) * 16);
    const auto k_offset = static_cast<uint32_t>((lane_ / 8 % 2 ^ swizzle(k_row)) * 16);
    const uint32_t q_base = queries_ + static_cast<uint32_t>((warp_row() + q_row) * kRowBytes);
    const uint32_t k_base = keys + static_cast<uint32_t>(k_row * kRowBytes);
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      uint32_t q[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        load_matrices(q[t], q_base + t * 16 * kRowBytes + pair_offset(q_offset, k));
      }
#pragma unroll
      for (int n = 0; n < kFlashKeys / 16; ++n) {
        uint32_t key[4];
        load_matrices(key, k_base + n * 16 * kRowBytes + pair_offset(k_offset, k));
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<T>(scores[t][2 * n], q[t], key[0], key[1]);
          multiply_add<T>(scores[t][2 * n + 1], q[t], key[2], key[3]);
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
        const int high = positions_[t][half] - first_key - lane_ % 4 * 2;
        const int low =
            first_visible(positions_[t][half], params_.sliding_window) - first_key - lane_ % 4 * 2;
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
        const float offset = maximum == -INFINITY ? 0.0f : maximum * params_.scale_log2;
        const float correction = fast_exp2(maxima_[t][half] * params_.scale_log2 - offset);
        maxima_[t][half] = maximum;
        float denominator = denominators_[t][half] * correction;
#pragma unroll
        for (int n = 0; n < kFlashKeys / 8; ++n) {
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& score = scores[t][n][at + e];
            score = fast_exp2(fmaf(score, params_.scale_log2, -offset));
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
      const float (&probabilities)[kRowTiles][kFlashKeys / 8][4], uint32_t values) {
    const int row = lane_ % 16;
    const auto offset = static_cast<uint32_t>((lane_ / 16 ^ swizzle(row)) * 16);
    const uint32_t base = values + static_cast<uint32_t>(row * kRowBytes);
#pragma unroll
    for (int k = 0; k < kFlashKeys / 16; ++k) {
      // Accumulators of two times 8 keys are laid out as a matrix of 16.
      uint32_t p[kRowTiles][4];
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&from)[4] = probabilities[t][2 * k + i / 2];
          p[t][i] = pair_of<T>(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int n = 0; n < kHeadDim / 16; ++n) {
        uint32_t value[4];
        load_matrices_transposed(value, base + k * 16 * kRowBytes + pair_offset(offset, n));
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t) {
          multiply_add<T>(sums_[t][2 * n], p[t], value[0], value[1]);
          multiply_add<T>(sums_[t][2 * n + 1], p[t], value[2], value[3]);
        }
      }
    }
  }

  // Through the warp's own rows of the queries, which nobody reads any more, to whole chunks.
  __device__ __forceinline__ void store() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float denominator = denominators_[t][half];
        denominator += __shfl_xor_sync(~0u, denominator, 1);
        denominator += __shfl_xor_sync(~0u, denominator, 2);
        const float factor = 1.0f / denominator;
        const int row = warp_row() + row_in_warp(t, half);
#pragma unroll
        for (int n = 0; n < kHeadDim / 8; ++n) {
          const uint32_t pair =
              pair_of<T>(sums_[t][n][half * 2] * factor, sums_[t][n][half * 2 + 1] * factor);
          asm volatile("st.shared.u32 [%0], %1;" ::"r"(chunk_address(queries_, row, n) +
                                                       static_cast<uint32_t>(lane_ % 4 * 4)),
                       "r"(pair)
                       : "memory");
        }
      }
    }
    __syncwarp();
    const auto group = static_cast<int>(params_.batch.group.divisor);
#pragma unroll 4
    for (int i = 0; i < kWarpRows * kChunks / 32; ++i) {
      const int row = warp_row() + (lane_ + i * 32) / kChunks;
      const int chunk = (lane_ + i * 32) % kChunks;
      const int of_sequence = tile_.first_row + row;
      if (of_sequence >= tile_.rows) continue;
      const auto query = static_cast<int>(params_.batch.group.quotient(of_sequence));
      const int head = kv_head_ * group + of_sequence - query * group;
      uint4 elements;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(elements.x), "=r"(elements.y), "=r"(elements.z), "=r"(elements.w)
                   : "r"(chunk_address(queries_, row, chunk))
                   : "memory");
      T* const out = static_cast<T*>(params_.out) +
                     ((tile_.first_query + query) * params_.num_heads + head) * kHeadDim;
      *reinterpret_cast<uint4*>(out + chunk * 8) = elements;
    }
  }

  const FlashParams& params_;
  const QueryTile& tile_;
  const int kv_head_;
  const int lane_;
  const uint32_t queries_;    // [kRows][kHeadDim]
  const uint32_t converted_;  // [kFlashKeys][kHeadDim] where the cache is float8
  const uint32_t keys_;       // [kFlashKeys][kHeadDim], as the cache has them
  const uint32_t values_;     // the same
  int positions_[kRowTiles][2];
  float maxima_[kRowTiles][2];
  float denominators_[kRowTiles][2];  // of this lane's columns
  float sums_[kRowTiles][kHeadDim / 8][4];
};

template <typename T, int kHeadDim, bool kIsFp8>
__global__ void __launch_bounds__(kFlashThreads, 2)
    flash_kernel(const __grid_constant__ FlashParams params) {
  extern __shared__ __align__(128) char shared[];
  using Tile = FlashTile<T, kHeadDim, kIsFp8>;
  wait_for_previous();
  release_next();
  const uint32_t index = params.num_kv_heads.quotient(blockIdx.x);
  const QueryTile tile = find_tile<Tile::kRows>(params.batch, static_cast<int>(index));
  if (tile.first_row >= tile.rows) return;
  const auto kv_head = static_cast<int>(blockIdx.x - index * params.num_kv_heads.divisor);
  Tile(params, tile, kv_head, shared).run();
}

}  // namespace quire::ops::cuda
