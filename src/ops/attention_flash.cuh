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

// kIsFp8: the cache is float8 e4m3, and is converted to T in shared memory. A warp has kRowTiles
// times 16 rows: two where their sums fit into registers and there are enough rows, as ldmatrix
// reads shared memory at 128 bytes a cycle and takes longer than the products do with only 16. What
// comes out for a row does not depend on it.
template <typename T, int kHeadDim, bool kIsFp8, int kRowTiles>
class FlashTile {
 public:
  static_assert(kRowTiles == 1 || (kRowTiles == 2 && kHeadDim <= 128));
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kFlashWarps * kWarpRows;

  // Shared memory: queries; keys and values of T; where those are converted, keys and values as
  // they come. Keys and values of 256 elements are converted to the same place one after the other,
  // so that two blocks fit on a multiprocessor.
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kTileBytes = kFlashKeys * kRowBytes;
  static constexpr int kCacheRowBytes = kIsFp8 ? kHeadDim : kRowBytes;
  static constexpr int kCacheTileBytes = kFlashKeys * kCacheRowBytes;
  static constexpr bool kSharesPlace = kIsFp8 && kHeadDim > 128;
  static constexpr int kKeysBegin = kRows * kRowBytes;
  static constexpr int kValuesBegin = kKeysBegin + (kSharesPlace ? 0 : kTileBytes);
  static constexpr int kCacheBegin = kValuesBegin + kTileBytes;
  static constexpr int kSharedBytes = kCacheBegin + (kIsFp8 ? 2 * kCacheTileBytes : 0);
  // As the registers of 2 * kRowTiles sums and scores allow.
  static constexpr int kBlocksTogether = kRowTiles == 1 && kHeadDim <= 128 ? 3 : 2;

  __device__ __forceinline__ FlashTile(const FlashParams& params, const QueryTile& tile,
                                       int kv_head, char* shared)
      : params_(params),
        tile_(tile),
        kv_head_(kv_head),
        lane_(static_cast<int>(threadIdx.x % 32)),
        queries_(to_shared(shared)),
        keys_(queries_ + kKeysBegin),
        values_(queries_ + kValuesBegin),
        cache_keys_(kIsFp8 ? queries_ + kCacheBegin : keys_),
        cache_values_(kIsFp8 ? cache_keys_ + kCacheTileBytes : values_) {}

  __device__ __forceinline__ void run() {
    copy_queries();
    const int last_row = min(tile_.first_row + kRows, tile_.rows) - 1;
    const int last_position = tile_.position(params_.batch.group, last_row);
    const int first_position = tile_.position(params_.batch.group, tile_.first_row);
    // Whole tiles are masked only from these on.
    const int first_masked = first_position + 1;
    const int seen_by_all = first_visible(last_position, params_.sliding_window);
    const int begin = first_visible(first_position, params_.sliding_window) / kFlashKeys;
    begin_rows();

    int index = last_position / kFlashKeys;
    uint32_t place = place_of(index);
    copy_keys(index, place);
    if constexpr (kIsFp8) copy_values(index, place);
    for (; index >= begin; --index) {
      const bool is_last = index == begin;
      const uint32_t next_place = is_last ? 0 : place_of(index - 1);
      float scores[kRowTiles][kFlashKeys / 8][4] = {};
      if constexpr (!kIsFp8) {
        wait_for_all<0>();
        copy_values(index, place);
        add_scores(scores);
        wait_for_all<0>();
        if (!is_last) copy_keys(index - 1, next_place);
      } else if constexpr (kSharesPlace) {
        wait_for_all<1>();
        convert(cache_keys_, keys_);
        __syncthreads();
        if (!is_last) copy_keys(index - 1, next_place);
        add_scores(scores);
        is_last ? wait_for_all<0>() : wait_for_all<1>();
        convert(cache_values_, values_);
        __syncthreads();
        if (!is_last) copy_values(index - 1, next_place);
      } else {
        wait_for_all<0>();
        convert(cache_keys_, keys_);
        convert(cache_values_, values_);
        __syncthreads();
        if (!is_last) {
          copy_keys(index - 1, next_place);
          copy_values(index - 1, next_place);
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

  // This thread's copies but for the last kPending, then everybody's; and all are done with what
  // they have read before.
  template <int kPending>
  __device__ __forceinline__ static void wait_for_all() {
    wait_for_copies<kPending>();
    __syncthreads();
  }

  __device__ __forceinline__ void copy_keys(int index, uint32_t place) const {
    copy_tile(params_.keys, cache_keys_, index, place);
    commit_copies();
  }
  __device__ __forceinline__ void copy_values(int index, uint32_t place) const {
    copy_tile(params_.values, cache_values_, index, place);
    commit_copies();
  }

  // Lane l: the row of the cache that the keys from l % 4 * kKeysTogether of a tile on are in.
  __device__ __forceinline__ uint32_t place_of(int index) const {
    static_assert(kFlashKeys / kKeysTogether == 4);
    const auto key = static_cast<uint32_t>(index * kFlashKeys + lane_ % 4 * kKeysTogether);
    if (key >= static_cast<uint32_t>(tile_.context_len)) return 0;
    const uint32_t nth = params_.block_size.quotient(key);
    const auto block = static_cast<uint32_t>(tile_.block_table[nth]);
    const uint32_t head_block = block * params_.num_kv_heads.divisor + kv_head_;
    return (head_block - nth) * params_.block_size.divisor + key;
  }

  // Keys beyond the context are zeros: whatever else is in the cache might not be finite.
  __device__ __forceinline__ void copy_tile(const char* from, uint32_t to, int index,
                                            uint32_t place) const {
    // Threads side by side copy a power of two of chunks, and all of a thread's rows and chunks are
    // at constant distances: it needs few registers beside the sums.
    constexpr int kCacheChunks = kCacheRowBytes / 16;
    constexpr int kWidth = kCacheChunks & -kCacheChunks;
    constexpr int kHeight = kFlashThreads / kWidth;
    static_assert(kFlashKeys % kHeight == 0);
    const int row = static_cast<int>(threadIdx.x) / kWidth;
    const int chunk = static_cast<int>(threadIdx.x) % kWidth;
    const int keys_left = tile_.context_len - index * kFlashKeys - row;
    from += row % kKeysTogether * kCacheRowBytes + chunk * 16;
#pragma unroll
    for (int down = 0; down < kFlashKeys; down += kHeight) {
      const int in_group = kHeight < kKeysTogether ? down % kKeysTogether : 0;
      const int group =
          kHeight < kKeysTogether ? down / kKeysTogether : (down + row) / kKeysTogether;
      const uint32_t cache_row = __shfl_sync(~0u, place, group);
      const char* const source =
          from + static_cast<uint64_t>(cache_row) * kCacheRowBytes + in_group * kCacheRowBytes;
#pragma unroll
      for (int right = 0; right < kCacheChunks; right += kWidth) {
        const uint32_t target =
            kIsFp8
                ? to + static_cast<uint32_t>((row + down) * kCacheRowBytes + (chunk + right) * 16)
                : chunk_address(to, row + down, chunk + right);
        copy_async(target, source + right * 16, down < keys_left);
      }
    }
  }

  // A tile of float8 to T, which holds all of its values.
  __device__ __forceinline__ void convert(uint32_t from, uint32_t to) const {
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
                       chunk_address(to, nth / kChunks, nth % kChunks)),
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
    const auto q_offset = static_cast<uint32_t>((lane_ / 16 ^ swizzle(q_row)) * 16);
    const auto k_offset = static_cast<uint32_t>((lane_ / 8 % 2 ^ swizzle(k_row)) * 16);
    const uint32_t q_base = queries_ + static_cast<uint32_t>((warp_row() + q_row) * kRowBytes);
    const uint32_t k_base = keys_ + static_cast<uint32_t>(k_row * kRowBytes);
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
        // Rows beyond the sequence's are as its last.
        const int row = min(tile_.first_row + warp_row() + row_in_warp(t, half), tile_.rows - 1);
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
      const float (&probabilities)[kRowTiles][kFlashKeys / 8][4]) {
    const int row = lane_ % 16;
    const auto offset = static_cast<uint32_t>((lane_ / 16 ^ swizzle(row)) * 16);
    const uint32_t base = values_ + static_cast<uint32_t>(row * kRowBytes);
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
  const uint32_t queries_;       // [kRows][kHeadDim] of T, swizzled
  const uint32_t keys_;          // [kFlashKeys][kHeadDim] of T, swizzled
  const uint32_t values_;        // the same
  const uint32_t cache_keys_;    // where copies go: keys_, or [kFlashKeys][kHeadDim] of float8
  const uint32_t cache_values_;  // the same
  float maxima_[kRowTiles][2];
  float denominators_[kRowTiles][2];  // of this lane's columns
  float sums_[kRowTiles][kHeadDim / 8][4];
};

template <typename Tile>
__global__ void __launch_bounds__(kFlashThreads, Tile::kBlocksTogether)
    flash_kernel(const __grid_constant__ FlashParams params) {
  extern __shared__ __align__(128) char shared[];
  wait_for_previous();
  release_next();
  const uint32_t index = params.num_kv_heads.quotient(blockIdx.x);
  const QueryTile tile = find_tile<Tile::kRows>(params.batch, static_cast<int>(index));
  if (tile.first_row >= tile.rows) return;
  const auto kv_head = static_cast<int>(blockIdx.x - index * params.num_kv_heads.divisor);
  Tile(params, tile, kv_head, shared).run();
}

}  // namespace quire::ops::cuda
