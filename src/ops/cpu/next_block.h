#pragma once
// Which bytes of the next block of weights a row tile asks for while it passes over this one.
//
// Thread safety: a free function.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/cpu/kernels.h"

namespace quire::ops {

// Row tiles that fetch the next block: few enough for each to ask for some bytes a step.
inline constexpr int64_t kFetchingTiles = 8;

// With some rows, what comes next in memory is fetched while they pass over the block: each of the
// first row tiles asks for a part of the `bytes` at `next`. One tile reads memory as one stream,
// which needs no help, and those of a whole task of `task_tiles` take much longer than memory.
// `tile` is row tile `number` of `tiles`; it keeps what it has where it asks for nothing.
template <typename Tile>
void fetch_next(int64_t number, int64_t tiles, int64_t task_tiles, const std::byte* next,
                int64_t bytes, Tile& tile) {
  const int64_t parts = std::min(tiles, kFetchingTiles);
  if (tiles == 1 || tiles >= task_tiles || number >= parts) return;
  tile.next_bytes = bytes / parts;
  tile.next = next + number * tile.next_bytes;
}

}  // namespace quire::ops
