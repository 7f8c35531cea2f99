#include "ops/group_tiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/group_tile_rows.h"

namespace quire::ops {
namespace {

// Scale and shift of a group, and whether all of its integers are 0 instead of the source's.
struct TileScale {
  float scale = 0;
  float shift = 0;
  bool is_constant = false;
};

// The largest shift whose sums with integers float16 holds.
constexpr float kLargestShift = 32768;

// Beyond that the group is a constant, as its numbers differ by less than 1 % of their `mean`.
TileScale scale_with_offset(float scale, float offset, float mean) {
  if (offset == 0) return {scale, 0};
  const float exact = offset / scale;
  if (!std::isnan(scale) && !(std::abs(exact) <= kLargestShift)) {
    return {offset + scale * mean, 1, true};
  }
  const float nearest = std::nearbyint(exact);
  return {scale, scale * nearest == offset ? nearest : exact};
}

// Of the group in the layout that begins at `input`.
float mean_integer(const GroupTiles& layout, const GroupedRows& source, int64_t row,
                   int64_t input) {
  const int64_t count = std::min(layout.group_inputs(), layout.k - input);
  const int8_t* const integers = source.data + row * layout.k + input;
  return static_cast<float>(std::accumulate(integers, integers + count, 0)) /
         static_cast<float>(count);
}

TileScale scale_at(const GroupTiles& layout, const GroupedRows& source, int64_t row,
                   int64_t input) {
  if (input >= layout.k) return {};
  const int64_t size = layout.source_group;
  const int64_t at = size == 0 ? row : row * ceil_div(layout.k, size) + input / size;
  const float offset = source.offsets == nullptr ? 0 : source.offsets[at];
  return scale_with_offset(source.scales[at], offset, mean_integer(layout, source, row, input));
}

float* scales_in(const GroupTiles& layout, int64_t group, std::byte* block) {
  return reinterpret_cast<float*>(block + layout.data_bytes()) + group * kTileOutputs;
}

void set_scale(const GroupTiles& layout, int64_t group, int64_t output, const TileScale& scale,
               std::byte* block) {
  float* const scales = scales_in(layout, group, block);
  scales[output] = scale.scale;
  if (layout.has_shifts) scales[layout.groups * kTileOutputs + output] = scale.shift;
}

std::byte* block_of(const GroupTiles& layout, int64_t row, int64_t block, std::byte* tiles) {
  return tiles + (row / kTileOutputs * layout.blocks() + block) * layout.block_bytes();
}

}  // namespace

void pack_tile_rows(const GroupTiles& layout, int64_t first_row, const GroupedRows& source,
                    std::byte* tiles) {
  for (int64_t row = 0; row < source.rows; ++row) {
    const int64_t output = (first_row + row) % kTileOutputs;
    const TilePlace* const places = places_of(layout, output);
    const int8_t* const integers = source.data + row * layout.k;
    for (int64_t block = 0; block < layout.blocks(); ++block) {
      std::byte* const to = block_of(layout, first_row + row, block, tiles);
      const int64_t first = block * kTileInputs;
      for (int64_t group = 0; group < layout.groups; ++group) {
        const int64_t begin = group * layout.group_inputs();
        TileScale scale = scale_at(layout, source, row, first + begin);
        const bool takes_integers = !scale.is_constant;
        if (layout.is_unsigned && takes_integers) scale.shift += static_cast<float>(layout.excess);
        set_scale(layout, group, output, scale, to);
        for (int64_t i = begin; i < begin + layout.group_inputs(); ++i) {
          const bool exists = takes_integers && first + i < layout.k;
          int code = layout.excess;
          if (exists) code = integers[first + i] + (layout.is_unsigned ? 0 : layout.excess);
          const TilePlace place = places[i];
          to[place.byte] |= static_cast<std::byte>(code << place.shift);
        }
      }
    }
  }
}

void unpack_tile_row(const GroupTiles& layout, int64_t row, const std::byte* tiles, float* out) {
  load_tile_row(layout, row, tiles, out);
}

}  // namespace quire::ops
