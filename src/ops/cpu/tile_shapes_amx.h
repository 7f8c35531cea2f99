#pragma once
// How many rows and bytes AMX's tiles have. Only for files compiled for AMX (see
// ops/cpu/kernels.h): everything here is local to the file that includes it.
#include <immintrin.h>

#include <cstdint>

namespace quire::ops::amx {
namespace {

// Stores before it are done: compilers are not told of all that tile instructions read.
[[maybe_unused]] inline void finish_stores(const void* memory) {
  asm volatile("" : : "r"(memory) : "memory");
}

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int bytes) {
    row_bytes[tile] = static_cast<uint16_t>(bytes);
    rows[tile] = static_cast<uint8_t>(num_rows);
  }
  // Gives the tiles these shapes, until _tile_release().
  void load() const {
    finish_stores(this);
    _tile_loadconfig(this);
  }
};

}  // namespace
}  // namespace quire::ops::amx
