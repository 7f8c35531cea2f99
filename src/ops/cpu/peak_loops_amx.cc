#include <immintrin.h>

#include "ops/cpu/peak_loops.h"
#include "ops/cpu/tile_shapes_amx.h"

namespace quire::ops::amx {
namespace {

constexpr int kSide = 16;
constexpr int kTileWords = kSide * kSide;

// Tiles 0 to 3 are zeros, 4 and 5 `values`.
void begin(const float* values) {
  TileShapes shapes;
  for (int tile = 0; tile < 6; ++tile) shapes.set(tile, kSide, 64);
  finish_stores(values);
  shapes.load();
  _tile_loadd(4, values, 64);
  _tile_loadd(5, values, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// The sum of tiles 0 to 3, whose words are of type T.
template <typename T>
T end() {
  alignas(64) T words[4][kTileWords];
  _tile_stored(0, words[0], 64);
  _tile_stored(1, words[1], 64);
  _tile_stored(2, words[2], 64);
  _tile_stored(3, words[3], 64);
  _tile_release();
  T total = 0;
  for (const auto& tile : words) {
    for (const T word : tile) total += word;
  }
  return total;
}

}  // namespace

double peak_bf16(int64_t steps, float* sink) {
  alignas(64) float values[kTileWords];
  for (float& value : values) value = *sink + 0.5f;
  begin(values);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  *sink = end<float>();
  return static_cast<double>(steps) * 4 * kTileWords * 2 * kSide * 2;
}

double peak_i8(int64_t steps, float* sink) {
  alignas(64) float values[kTileWords];
  for (float& value : values) value = *sink + 0.5f;
  begin(values);
  for (int64_t step = 0; step < steps; ++step) {
    _tile_dpbsud(0, 4, 5);
    _tile_dpbsud(1, 4, 5);
    _tile_dpbsud(2, 4, 5);
    _tile_dpbsud(3, 4, 5);
  }
  *sink = static_cast<float>(end<uint32_t>() & 1);
  return static_cast<double>(steps) * 4 * kTileWords * 4 * kSide * 2;
}

}  // namespace quire::ops::amx
