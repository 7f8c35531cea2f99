#pragma once
// Layout of an integer weight [n, k] in the CPU's memory.
//
// As in weight_panels.h a panel holds kPanelLanes output features side by side, with K inside, so
// one layout serves one input row and many. A panel is its groups one after the other. A group
// contains all that a product needs, so one row reads memory as one stream:
//
//   scales[kPanelLanes], offsets[kPanelLanes] (where the format has them), data
//
// Scales and offsets are float32 or bfloat16, as the format says. Where they are int8, the panel
// begins with their float32 factors, which stay in the L1 cache: for each kScaleBlock inputs
// scales[kPanelLanes] and offsets[kPanelLanes] (where the format has them). The data are steps: of
// 4 inputs for int8, [group_size / 4][kPanelLanes][4] bytes, each the value + 128; of 8 inputs for
// int4, the first 4 in the low halves of the bytes and the others in the high halves, each the
// value + 8, or the value where the format is unsigned. Output features are padded to whole panels
// with scales and offsets of 0, and K to whole groups. A single scale for an output is repeated for
// each group of kWholeRowGroup inputs.
//
// Thread safety: pack_group_rows may run at once on disjoint rows.
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/cpu/kernels.h"
#include "ops/weight_format.h"

namespace quire::ops {

inline constexpr int64_t kWholeRowGroup = 128;

struct GroupLayout {
  int64_t k = 0;
  int64_t group_size = 0;  // in memory
  int64_t groups = 0;      // of a row, in memory
  bool four_bits = false;
  bool has_offsets = false;
  bool one_scale = false;    // a row's groups have the same scale and offset
  int scale_bytes = 4;       // of a scale or an offset: 4 float32, 2 bfloat16, 1 int8
  bool is_unsigned = false;  // int4 from 0 to 15

  // How much a byte, or half of one, is above its integer.
  int excess() const { return is_unsigned ? 0 : four_bits ? 8 : 128; }
  int64_t header_bytes() const { return kPanelLanes * scale_bytes * (has_offsets ? 2 : 1); }
  int64_t data_bytes() const { return kPanelLanes * group_size / (four_bits ? 2 : 1); }
  int64_t group_bytes() const { return header_bytes() + data_bytes(); }
  // For int8 scales: how many blocks a row has, which groups belong to a block, and how many floats
  // there are.
  int64_t scale_blocks() const { return scale_bytes == 1 ? ceil_div(k, kScaleBlock) : 0; }
  int64_t groups_per_block() const { return kScaleBlock / group_size; }
  int64_t block_floats() const { return kPanelLanes * (has_offsets ? 2 : 1); }
  // Where a panel's first group is.
  int64_t first_group() const {
    return scale_blocks() * block_floats() * static_cast<int64_t>(sizeof(float));
  }
  int64_t panel_bytes() const { return first_group() + groups * group_bytes(); }
  // Inputs of group `group`; fewer in the last one where they don't fill it.
  int64_t inputs_of(int64_t group) const {
    return k - group * group_size < group_size ? k - group * group_size : group_size;
  }
};

// The layout for an integer format.
GroupLayout group_layout(const WeightFormat& format, int64_t k);
size_t group_panel_bytes(const GroupLayout& layout, int64_t n);

// Rows of integers, with the scales of their groups, which are rounded to the format's type.
struct GroupedRows {
  int64_t rows = 0;
  const int8_t* data = nullptr;  // [rows, k]: int4's from -8 to 7, or 0 to 15
  // In place of data, for the CPU: 8 (int4) or 4 (int8) of them to a word, the first in the lowest
  // bits, each with the layout's excess; row r begins at words + r * word_stride. k is whole
  // groups.
  const uint32_t* words = nullptr;
  int64_t word_stride = 0;
  const float* scales = nullptr;   // [rows, groups]: ceil(k / the format's group_size), or 1
  const float* offsets = nullptr;  // the same; null where the format has none
  // For formats with int8 scales: [rows, groups]. Then `scales` and `offsets` are their factors,
  // [rows, ceil(k / kScaleBlock)].
  const int8_t* scale_factors = nullptr;
  const int8_t* offset_factors = nullptr;
};

void pack_group_rows(const GroupLayout& layout, int64_t first_row, const GroupedRows& source,
                     std::byte* panels);
// The k values of a row as float32.
void unpack_group_row(const GroupLayout& layout, int64_t row, const std::byte* panels, float* out);
// The scales of a panel's group as float32, then its offsets if it has any: kPanelLanes of each.
void unpack_header(const GroupLayout& layout, const std::byte* panel, int64_t group, float* out);
// The values of a panel's group as a panel of float32: [inputs][kPanelLanes], without padding.
void unpack_group(const GroupLayout& layout, const std::byte* panel, int64_t group, float* out);

}  // namespace quire::ops
