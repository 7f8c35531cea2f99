#pragma once
// The memory of a block of the flash attention kernel (flash.cuh): what is where in
// shared memory, and how queries, keys and values get there.
//
// Shared memory holds rows of 16-byte chunks, swizzled so that the eight rows that ldmatrix reads
// lie in different banks: the chunk's number is xored with the row's.
#include <type_traits>

#include "ops/cuda/attention/tiles.cuh"
#include "ops/cuda/ptx/convert.cuh"
#include "ops/cuda/ptx/copy_async.cuh"
#include "ops/cuda/ptx/shared_memory.cuh"

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
  const float* key_scales;    // [num_kv_heads] of float8, or null: all are 1
  const float* value_scales;  // the same
  bool is_e5m2;               // of float8: which
  FastDivisor block_size;
  FastDivisor num_kv_heads;
};

inline constexpr int kFlashWarps = 4;
inline constexpr int kFlashThreads = kFlashWarps * 32;
inline constexpr int kFlashKeys = 64;  // of a tile
// Keys that are side by side in memory: a divisor of every block size.
inline constexpr int kKeysTogether = 16;

// kIsFp8: the cache is float8. It is converted to float16 in shared memory, which one
// instruction does and which holds all of its values; so are queries. A warp has kRowTiles
// times 16 rows: two where their sums fit into registers and there are enough rows, as ldmatrix
// reads shared memory at 128 bytes a cycle and takes longer than the products do with only 16. What
// comes out for a row does not depend on it. Of a row's tiles of keys, each of the kBlocks blocks
// of a cluster has every kBlocks-th.
template <typename Element, int kHeadSize, bool kHasFp8, int kRowTilesOfWarp,
          int kBlocksOfCluster = 1>
struct FlashShape {
  using T = Element;
  using Product = std::conditional_t<kHasFp8, __half, T>;  // what the tensor cores multiply
  static constexpr int kHeadDim = kHeadSize;
  static constexpr bool kIsFp8 = kHasFp8;
  static constexpr int kRowTiles = kRowTilesOfWarp;
  static constexpr int kBlocks = kBlocksOfCluster;
  static_assert(kRowTiles == 1 || (kRowTiles == 2 && kHeadDim <= 128));
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kFlashWarps * kWarpRows;

  // Shared memory: queries; keys and values; where those are converted, keys and values as
  // they come. Keys and values of 256 elements are converted to the same place one after the other,
  // so that two blocks fit on a multiprocessor.
  static constexpr int kRowBytes = kHeadDim * 2;
  static constexpr int kChunks = kRowBytes / 16;
  static constexpr int kTileBytes = kFlashKeys * kRowBytes;
  static constexpr int kCacheRowBytes = kIsFp8 ? kHeadDim : kRowBytes;
  static constexpr int kCacheTileBytes = kFlashKeys * kCacheRowBytes;
  static constexpr bool kSharesPlace = kIsFp8 && kHeadDim > 128;
  static constexpr int kKeysBegin = kRows * kRowBytes;
  static constexpr int kValuesBegin = kKeysBegin + (kSharesPlace ? 0 : kTileBytes);
  static constexpr int kCacheBegin = kValuesBegin + kTileBytes;
  static constexpr int kSharedBytes = kCacheBegin + (kIsFp8 ? 2 * kCacheTileBytes : 0);
  // What the smallest device from compute capability 8.0 on lets a block have.
  static_assert(kSharedBytes <= 99 * 1024);
  // As the registers of 2 * kRowTiles sums and scores allow.
  static constexpr int kBlocksTogether = kRowTiles == 1 && kHeadDim <= 128 ? 3 : 2;

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
};

// A block's tile of rows.
template <typename Shape>
class FlashMemory {
 public:
  __device__ __forceinline__ FlashMemory(const FlashParams& params, const QueryTile& tile,
                                         int kv_head, char* shared)
      : params_(params),
        tile_(tile),
        kv_head_(kv_head),
        lane_(static_cast<int>(threadIdx.x % 32)),
        queries_(shared_address(shared)),
        keys_(queries_ + Shape::kKeysBegin),
        values_(queries_ + Shape::kValuesBegin),
        cache_keys_(kIsFp8 ? queries_ + Shape::kCacheBegin : keys_),
        cache_values_(kIsFp8 ? cache_keys_ + Shape::kCacheTileBytes : values_) {}

  __device__ __forceinline__ uint32_t queries() const { return queries_; }
  __device__ __forceinline__ uint32_t keys() const { return keys_; }
  __device__ __forceinline__ uint32_t values() const { return values_; }
  // The warp's first row of the tile.
  __device__ __forceinline__ static int warp_row() {
    return static_cast<int>(threadIdx.x / 32) * Shape::kWarpRows;
  }

  // Starts copying the queries, in a group of its own. Rows beyond the sequence's are zeros.
  __device__ __forceinline__ void copy_queries() const {
    static_assert(Shape::kRows * kChunks % kFlashThreads == 0);
    const T* const q = static_cast<const T*>(params_.q);
    const auto group = static_cast<int>(params_.batch.group.divisor);
#pragma unroll 4
    for (int i = 0; i < Shape::kRows * kChunks / kFlashThreads; ++i) {
      const int index = static_cast<int>(threadIdx.x) + i * kFlashThreads;
      const int row = index / kChunks;
      const int chunk = index % kChunks;
      const bool present = tile_.first_row + row < tile_.rows;
      const int of_sequence = present ? tile_.first_row + row : 0;
      const auto query = static_cast<int>(params_.batch.group.quotient(of_sequence));
      const int head = kv_head_ * group + of_sequence - query * group;
      copy_async(Shape::chunk_address(queries_, row, chunk),
                 q + (tile_.first_query + query) * params_.q_stride + head * kHeadDim + chunk * 8,
                 present);
    }
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

  // Starts copying a tile of keys, place_of(index) being where it is.
  __device__ __forceinline__ void copy_keys(int index, uint32_t place) const {
    copy_tile(params_.keys, cache_keys_, index, place);
    commit_copies();
  }
  __device__ __forceinline__ void copy_values(int index, uint32_t place) const {
    copy_tile(params_.values, cache_values_, index, place);
    commit_copies();
  }

  // Copied float8 to float16, as all threads of the block find it after a barrier.
  __device__ __forceinline__ void convert_keys() const {
    convert(cache_keys_, keys_);
  }
  __device__ __forceinline__ void convert_values() const {
    convert(cache_values_, values_);
  }

  // This warp's queries to float16, in their place.
  __device__ __forceinline__ void convert_queries() const {
    constexpr float kLargest = 65504.0f;  // of float16
#pragma unroll 4
    for (int i = 0; i < Shape::kWarpRows * kChunks / 32; ++i) {
      const uint32_t address =
          queries_ + static_cast<uint32_t>((warp_row() * kChunks + lane_ + i * 32) * 16);
      uint4 chunk = load_chunk(address);
      for (uint32_t* pair : {&chunk.x, &chunk.y, &chunk.z, &chunk.w}) {
        const float2 wide = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(pair));
        *pair = pair_of<__half>(fminf(fmaxf(wide.x, -kLargest), kLargest),
                                fminf(fmaxf(wide.y, -kLargest), kLargest));
      }
      store_chunk(address, chunk);
    }
  }

  // Where the row's chunk goes to; null for rows beyond the sequence's.
  __device__ __forceinline__ uint4* out_chunk(int row, int chunk) const {
    const int of_sequence = tile_.first_row + row;
    if (of_sequence >= tile_.rows) return nullptr;
    const auto group = static_cast<int>(params_.batch.group.divisor);
    const auto query = static_cast<int>(params_.batch.group.quotient(of_sequence));
    const int head = kv_head_ * group + of_sequence - query * group;
    T* const out = static_cast<T*>(params_.out) +
                   ((tile_.first_query + query) * params_.num_heads + head) * kHeadDim;
    return reinterpret_cast<uint4*>(out + chunk * 8);
  }

 private:
  using T = typename Shape::T;
  static constexpr int kHeadDim = Shape::kHeadDim;
  static constexpr bool kIsFp8 = Shape::kIsFp8;
  static constexpr int kRowBytes = Shape::kRowBytes;
  static constexpr int kChunks = Shape::kChunks;

  // Keys beyond the context are zeros: whatever else is in the cache might not be finite.
  __device__ __forceinline__ void copy_tile(const char* from, uint32_t to, int index,
                                            uint32_t place) const {
    // Threads side by side copy a power of two of chunks, and all of a thread's rows and chunks are
    // at constant distances: it needs few registers beside the sums.
    constexpr int kCacheChunks = Shape::kCacheRowBytes / 16;
    constexpr int kWidth = kCacheChunks & -kCacheChunks;
    constexpr int kHeight = kFlashThreads / kWidth;
    static_assert(kFlashKeys % kHeight == 0);
    const int row = static_cast<int>(threadIdx.x) / kWidth;
    const int chunk = static_cast<int>(threadIdx.x) % kWidth;
    const int keys_left = tile_.context_len - index * kFlashKeys - row;
    from += row % kKeysTogether * Shape::kCacheRowBytes + chunk * 16;
#pragma unroll
    for (int down = 0; down < kFlashKeys; down += kHeight) {
      const int in_group = kHeight < kKeysTogether ? down % kKeysTogether : 0;
      const int group =
          kHeight < kKeysTogether ? down / kKeysTogether : (down + row) / kKeysTogether;
      const uint32_t cache_row = __shfl_sync(~0u, place, group);
      const char* const source = from + static_cast<uint64_t>(cache_row) * Shape::kCacheRowBytes +
                                 in_group * Shape::kCacheRowBytes;
#pragma unroll
      for (int right = 0; right < kCacheChunks; right += kWidth) {
        const uint32_t target =
            kIsFp8 ? to + static_cast<uint32_t>((row + down) * Shape::kCacheRowBytes +
                                                (chunk + right) * 16)
                   : Shape::chunk_address(to, row + down, chunk + right);
        copy_async(target, source + right * 16, down < keys_left);
      }
    }
  }

  // A tile of float8 to float16.
  __device__ __forceinline__ void convert(uint32_t from, uint32_t to) const {
    if (params_.is_e5m2) {
      convert_with(from, to, [](uint32_t four) { return halves_of_e5m2(four); });
    } else {
      convert_with(from, to, [](uint32_t four) { return halves_of_e4m3(four); });
    }
  }
  template <typename HalvesOf>
  __device__ __forceinline__ void convert_with(uint32_t from, uint32_t to,
                                               HalvesOf&& halves_of) const {
#pragma unroll 4
    for (int i = 0; i < kFlashKeys * kChunks / kFlashThreads; ++i) {
      const int nth = static_cast<int>(threadIdx.x) + i * kFlashThreads;
      const uint2 eight = load_pair(from + static_cast<uint32_t>(nth * 8));
      const uint2 first = halves_of(eight.x);
      const uint2 second = halves_of(eight.y);
      store_chunk(Shape::chunk_address(to, nth / kChunks, nth % kChunks),
                  {first.x, first.y, second.x, second.y});
    }
  }

  const FlashParams& params_;
  const QueryTile& tile_;
  const int kv_head_;
  const int lane_;
  const uint32_t queries_;       // [kRows][kHeadDim] of Product, swizzled
  const uint32_t keys_;          // [kFlashKeys][kHeadDim] of Product, swizzled
  const uint32_t values_;        // the same
  const uint32_t cache_keys_;    // where copies go: keys_, or [kFlashKeys][kHeadDim] of float8
  const uint32_t cache_values_;  // the same
};

}  // namespace quire::ops::cuda
