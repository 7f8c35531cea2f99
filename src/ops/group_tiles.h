#pragma once
// Layout of an integer weight [n, k] in a GPU's memory, in the order in which tensor cores read it.
//
// Outputs are cut into panels of kTileOutputs and inputs into blocks of kTileInputs, both filled up
// with zeros. A panel's blocks lie one after the other, then come the next panel's, and a block has
// all that a product needs of it, so that one copy brings one or several to a multiprocessor:
//
//   data, scales[groups][kTileOutputs], shifts[groups][kTileOutputs] (where the layout has them)
//
// A number is scale * (integer + shift): a zero point is a shift, and integers in memory are
// unsigned, the integer + excess. Scales and shifts are float32.
//
// The data are words of the 32 lanes of a warp. Lane 4 * row + quarter has, for outputs row and
// row + 8 and for each step of 16 inputs, inputs 2 * quarter, the next one, and those 8
// further on: the first operand of an mma of 16 x 8 x 16. A word has one output only, so that rows
// are packed apart from each other. Of int4 it has two steps of an output, the first of each pair
// of inputs in its lower half:
//   words[2 halves of the inputs][32 lanes][2 pairs of steps][2 outputs],
//   nibble 2 * step + (inputs 8 further on) + 4 * (second of a pair);
// of int8 one step:
//   words[4 quarters of the inputs][32 lanes][2 steps][2 outputs],
//   byte (inputs 8 further on) + 2 * (second of a pair).
//
// Thread safety: pack_tile_rows may run at once on disjoint rows.
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cpu/group_panels.h"
#include "ops/weight_format.h"

namespace quire::ops {

inline constexpr int64_t kTileOutputs = 16;
inline constexpr int64_t kTileInputs = 128;

struct GroupTiles {
  int64_t n = 0;
  int64_t k = 0;
  int64_t source_group = 0;  // the format's group_size
  int groups = 1;            // of a block: 1 or 4
  bool four_bits = false;
  bool has_shifts = false;
  bool is_unsigned = false;  // the source's integers: their shifts make up for it
  int excess = 0;

  constexpr int64_t panels() const { return ceil_div(n, kTileOutputs); }
  constexpr int64_t blocks() const { return ceil_div(k, kTileInputs); }
  constexpr int64_t group_inputs() const { return kTileInputs / groups; }
  constexpr int64_t data_bytes() const { return kTileOutputs * kTileInputs / (four_bits ? 2 : 1); }
  constexpr int64_t scales_bytes() const { return groups * kTileOutputs * int64_t{sizeof(float)}; }
  constexpr int64_t block_bytes() const {
    return data_bytes() + scales_bytes() * (has_shifts ? 2 : 1);
  }
  constexpr int64_t bytes() const { return panels() * blocks() * block_bytes(); }
};

// Whether a GPU supports integers of this format: not groups of 16, nor int8 scales.
constexpr bool has_group_tiles(const WeightFormat& format) {
  return format.is_integer() && format.group_size != 16 && format.scale_dtype == DType::kFloat32 &&
         !format.rounds_activations;
}

// For a format that has_group_tiles(). Groups of 64 become two of 32 with the same scale; whole
// rows become groups of 128.
constexpr GroupTiles group_tiles(const WeightFormat& format, int64_t n, int64_t k) {
  const bool four_bits = format.kind == WeightKind::kInt4;
  const bool is_fine = format.group_size == 32 || format.group_size == 64;
  return {.n = n,
          .k = k,
          .source_group = format.group_size,
          .groups = is_fine ? 4 : 1,
          .four_bits = four_bits,
          .has_shifts = format.has_offsets || format.is_unsigned,
          .is_unsigned = format.is_unsigned,
          .excess = four_bits ? 8 : 128};
}

// Packs rows of integers with their scales, from first_row on. `tiles` must be zero before the
// first call.
void pack_tile_rows(const GroupTiles& layout, int64_t first_row, const GroupedRows& source,
                    std::byte* tiles);
// The k numbers of a row as float32.
void unpack_tile_row(const GroupTiles& layout, int64_t row, const std::byte* tiles, float* out);

}  // namespace quire::ops
