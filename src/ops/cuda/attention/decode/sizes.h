#pragma once
// How the decode attention kernel for 16-bit activations (tensor_core.cuh) is cut into
// warps, what its shared memory holds, and how many tiles of the cache fit in a warp's ring on a
// device. There is no CUDA in here, so that this is tested without a GPU. The kernel checks that
// the compiler lays out its shared memory with the same size.
//
// Thread safety: pure functions.
#include <cstddef>
#include <optional>

#include "base/ceil_div.h"

namespace quire::ops::cuda {

inline constexpr int kDecodeWarps = 8;
inline constexpr int kFinishWarps = 3;
inline constexpr int kPlacedUnits = 4;
inline constexpr int kTileTokens = 16;
// A warp's tiles of a chunk: its number, and every kDecodeWarps-th from there.
inline constexpr int kWarpTiles = 4;
inline constexpr int kMaxDepth = 4;  // tiles in a warp's ring

// Elements of a row of queries in shared memory: the head, filled up to a multiple of what four
// lanes read (16 bytes each), and padded so that lanes of two rows hit different banks.
constexpr int decode_query_stride(int head_dim, int cache_element_bytes) {
  const int loaded = 4 * 16 / cache_element_bytes;
  return round_up(head_dim, loaded) + 32;
}

// Barriers, units with their rows, maxima and sums, queries: all that does not depend on how many
// rows (decode.cuh) a unit has and how deep the rings are. `tile_heads` is 8 or 16.
constexpr size_t decode_fixed_bytes(int head_dim, int cache_element_bytes, int tile_heads) {
  constexpr size_t kBarriers = 2 * kDecodeWarps * kMaxDepth + 3 * kPlacedUnits + kFinishWarps + 1;
  constexpr size_t kUnitBytes = 10 * sizeof(int) + 8 * kWarpTiles * kDecodeWarps;
  const auto heads = static_cast<size_t>(tile_heads);
  const auto stride = static_cast<size_t>(decode_query_stride(head_dim, cache_element_bytes));
  return 8 * kBarriers + kPlacedUnits * kUnitBytes + 8 * kDecodeWarps * heads +
         2 * kPlacedUnits * heads * stride;
}

// What follows: [kDecodeWarps][rows][head_dim] outputs, then the tiles:
// [kDecodeWarps][depth][keys, values].
constexpr size_t decode_outputs_bytes(int head_dim, int heads) {
  return sizeof(float) * kDecodeWarps * static_cast<size_t>(head_dim) * static_cast<size_t>(heads);
}
constexpr size_t decode_tiles_bytes(int head_dim, int cache_element_bytes, int depth) {
  const int row_bytes = head_dim * cache_element_bytes;
  return size_t{2} * kTileTokens * static_cast<size_t>(row_bytes) * kDecodeWarps *
         static_cast<size_t>(depth);
}

// Of a block whose units have up to `heads` rows, at most tile_heads.
constexpr size_t decode_shared_bytes(int head_dim, int cache_element_bytes, int tile_heads,
                                     int heads, int depth) {
  return decode_fixed_bytes(head_dim, cache_element_bytes, tile_heads) +
         decode_outputs_bytes(head_dim, heads) +
         decode_tiles_bytes(head_dim, cache_element_bytes, depth);
}

// The deepest rings that fit in max_shared_bytes, up to kMaxDepth. None: not even rings of one tile
// do, and the kernel cannot be launched.
constexpr std::optional<int> decode_depth(int head_dim, int cache_element_bytes, int tile_heads,
                                          int heads, size_t max_shared_bytes) {
  for (int depth = kMaxDepth; depth >= 1; --depth) {
    if (decode_shared_bytes(head_dim, cache_element_bytes, tile_heads, heads, depth) <=
        max_shared_bytes) {
      return depth;
    }
  }
  return std::nullopt;
}

}  // namespace quire::ops::cuda
