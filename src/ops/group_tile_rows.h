#pragma once
// Where integers lie in a GPU's layout (ops/group_tiles.h), and the loop that reads a row of them.
//
// It is in a header so that simulated GPUs can compile it without sanitizers, as all loops over
// weights. Thread safety: pure functions.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "ops/group_tiles.h"

namespace quire::ops {

inline constexpr int kTileStepInputs = 16;

// Where an integer is in a block's data.
struct TilePlace {
  int16_t byte = 0;
  int16_t shift = 0;  // of its bits in the byte
};

constexpr TilePlace place_in_tile(bool four_bits, int output, int input) {
  const int upper = output / 8;
  const int step = input / kTileStepInputs;
  const int further = input % kTileStepInputs / 8;
  const int lane = output % 8 * 4 + input % 8 / 2;
  const int second = input % 2;
  if (!four_bits) {
    const int word = (step / 2 * 32 + lane) * 4 + step % 2 * 2 + upper;
    return {static_cast<int16_t>(word * 4 + further + 2 * second), 0};
  }
  const int word = (step / 4 * 32 + lane) * 4 + step % 4 / 2 * 2 + upper;
  const int nibble = step % 2 * 2 + further + 4 * second;
  return {static_cast<int16_t>(word * 4 + nibble / 2), static_cast<int16_t>(nibble % 2 * 4)};
}

// Of the inputs of an output: the same for each block.
using TilePlaces = std::array<TilePlace, kTileInputs>;
using PanelPlaces = std::array<TilePlaces, kTileOutputs>;

constexpr PanelPlaces places_in_panel(bool four_bits) {
  PanelPlaces places;
  for (int output = 0; output < kTileOutputs; ++output) {
    for (int input = 0; input < kTileInputs; ++input) {
      places[static_cast<size_t>(output)][static_cast<size_t>(input)] =
          place_in_tile(four_bits, output, input);
    }
  }
  return places;
}

inline constexpr PanelPlaces kPlacesOf4Bits = places_in_panel(true);
inline constexpr PanelPlaces kPlacesOf8Bits = places_in_panel(false);

[[gnu::always_inline]] inline const TilePlace* places_of(const GroupTiles& layout, int64_t output) {
  const PanelPlaces& places = layout.four_bits ? kPlacesOf4Bits : kPlacesOf8Bits;
  return places[static_cast<size_t>(output)].data();
}

// The k numbers of a row as float32.
[[gnu::always_inline]] inline void load_tile_row(const GroupTiles& layout, int64_t row,
                                                 const std::byte* tiles, float* out) {
  const int64_t output = row % kTileOutputs;
  const int mask = layout.four_bits ? 15 : 255;
  const int excess = layout.excess;
  const TilePlace* const places = places_of(layout, output);
  const int64_t block_bytes = layout.block_bytes();
  const std::byte* block = tiles + row / kTileOutputs * layout.blocks() * block_bytes;
  for (int64_t first = 0; first < layout.k; first += kTileInputs, block += block_bytes) {
    const auto* scales = reinterpret_cast<const float*>(block + layout.data_bytes()) + output;
    const int64_t inputs = std::min<int64_t>(kTileInputs, layout.k - first);
    for (int64_t begin = 0; begin < inputs;
         begin += layout.group_inputs(), scales += kTileOutputs) {
      const float scale = *scales;
      const float shift = layout.has_shifts ? scales[layout.groups * kTileOutputs] : 0.0f;
      const int64_t end = std::min(inputs, begin + layout.group_inputs());
      for (int64_t i = begin; i < end; ++i) {
        const TilePlace place = places[i];
        const int code = static_cast<int>(block[place.byte]) >> place.shift & mask;
        out[first + i] = scale * (static_cast<float>(code - excess) + shift);
      }
    }
  }
}

}  // namespace quire::ops
