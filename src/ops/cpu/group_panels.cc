#include "ops/cpu/group_panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "core/dtype.h"
#include "ops/cpu/interleave_words.h"

namespace quire::ops {
namespace {

// The panel of a row.
template <typename Byte>
Byte* panel_of(const GroupLayout& layout, int64_t row, Byte* panels) {
  return panels + row / kPanelLanes * layout.panel_bytes();
}

template <typename Byte>
Byte* group_of(const GroupLayout& layout, int64_t group, Byte* panel) {
  return panel + layout.first_group() + group * layout.group_bytes();
}

// int4, a byte each, to words: the halves of their bytes have the layout's excess.
void join_halves(const GroupLayout& layout, const int8_t* data, int64_t words, uint32_t* out) {
  const uint64_t excess = static_cast<uint64_t>(layout.excess()) * 0x0101010101010101u;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t bytes;
    std::memcpy(&bytes, data + 8 * i, sizeof(bytes));
    bytes = (bytes ^ excess) & 0x0f0f0f0f0f0f0f0fu;
    out[i] = static_cast<uint32_t>(bytes | bytes >> 28);
  }
}

// The group_size integers of rows that begin row_bytes apart, from one lane on.
void pack_data(const GroupLayout& layout, const int8_t* data, int64_t row_bytes, int64_t rows,
               std::byte* out) {
  if (!layout.four_bits) {
    const auto flip = static_cast<uint32_t>(layout.excess()) * 0x01010101u;
    return interleave_words(reinterpret_cast<const std::byte*>(data), row_bytes, rows,
                            layout.group_size / 4, flip, out);
  }
  constexpr int64_t kMaxWords = kWholeRowGroup / 8;
  uint32_t joined[kPanelLanes][kMaxWords];
  const int64_t words = layout.group_size / 8;
  for (int64_t row = 0; row < rows; ++row) {
    join_halves(layout, data + row * row_bytes, words, joined[row]);
  }
  interleave_words(reinterpret_cast<const std::byte*>(joined), sizeof(joined[0]), rows, words, 0,
                   out);
}

// Number `i` of a group's scales and offsets, which are not int8.
void set_header(const GroupLayout& layout, int64_t i, float value, std::byte* group) {
  if (layout.scale_bytes == 2) {
    reinterpret_cast<BFloat16*>(group)[i] = BFloat16(value);
  } else {
    reinterpret_cast<float*>(group)[i] = value;
  }
}

// Number i of the scales and offsets of a panel's group: the scale of lane i, or the offset of lane
// i - kPanelLanes.
float header_of(const GroupLayout& layout, int64_t i, const std::byte* panel, int64_t group) {
  const std::byte* const header = group_of(layout, group, panel);
  if (layout.scale_bytes == 2) {
    return static_cast<float>(reinterpret_cast<const BFloat16*>(header)[i]);
  }
  if (layout.scale_bytes == 4) return reinterpret_cast<const float*>(header)[i];
  const int64_t block = group / layout.groups_per_block();
  const float scale = reinterpret_cast<const float*>(panel)[block * layout.block_floats() + i];
  return scale * static_cast<float>(reinterpret_cast<const int8_t*>(header)[i]);
}

// The header of a group in lanes `lane` and after it, of the source's rows from `first` on.
void pack_header(const GroupLayout& layout, const GroupedRows& source, int64_t first, int64_t rows,
                 int64_t group, int64_t lane, std::byte* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = layout.one_scale ? first + row : (first + row) * layout.groups + group;
    if (layout.scale_bytes == 1) {
      out[lane + row] = static_cast<std::byte>(source.scale_factors[at]);
      if (!layout.has_offsets) continue;
      out[kPanelLanes + lane + row] = static_cast<std::byte>(source.offset_factors[at]);
    } else {
      set_header(layout, lane + row, source.scales[at], out);
      if (layout.has_offsets) set_header(layout, kPanelLanes + lane + row, source.offsets[at], out);
    }
  }
}

// What int8 scales and offsets are multiplied by, the same way.
void pack_scale_blocks(const GroupLayout& layout, const GroupedRows& source, int64_t first,
                       int64_t rows, int64_t lane, std::byte* panel) {
  const int64_t blocks = layout.scale_blocks();
  for (int64_t block = 0; block < blocks; ++block) {
    float* const out = reinterpret_cast<float*>(panel) + block * layout.block_floats() + lane;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = (first + row) * blocks + block;
      out[row] = source.scales[at];
      if (layout.has_offsets) out[kPanelLanes + row] = source.offsets[at];
    }
  }
}

// A group of `rows` rows of the source, from `first` on, which are `lane` and those after it.
void pack_group(const GroupLayout& layout, const GroupedRows& source, int64_t first, int64_t rows,
                int64_t group, int64_t lane, std::byte* out) {
  pack_header(layout, source, first, rows, group, lane, out);
  const int8_t* data = source.data + first * layout.k + group * layout.group_size;
  const int64_t inputs = layout.inputs_of(group);
  std::byte* const packed = out + layout.header_bytes() + lane * 4;
  if (inputs == layout.group_size) return pack_data(layout, data, layout.k, rows, packed);
  int8_t padded[kPanelLanes][kWholeRowGroup] = {};
  for (int64_t row = 0; row < rows; ++row) std::copy_n(data + row * layout.k, inputs, padded[row]);
  pack_data(layout, padded[0], kWholeRowGroup, rows, packed);
}

// Of one lane, relative to where the data of a group begin.
int integer_at(const GroupLayout& layout, const std::byte* data, int64_t lane, int64_t i) {
  if (!layout.four_bits) {
    return static_cast<int>(data[(i / 4 * kPanelLanes + lane) * 4 + i % 4]) - layout.excess();
  }
  const int byte = static_cast<int>(data[(i / 8 * kPanelLanes + lane) * 4 + i % 4]);
  return (i % 8 < 4 ? byte & 15 : byte >> 4) - layout.excess();
}

}  // namespace

GroupLayout group_layout(const WeightFormat& format, int64_t k) {
  const bool one_scale = format.group_size == 0;
  const int64_t size = one_scale ? kWholeRowGroup : format.group_size;
  return {.k = k,
          .group_size = size,
          .groups = ceil_div(k, size),
          .four_bits = format.kind == WeightKind::kInt4,
          .has_offsets = format.has_offsets,
          .one_scale = one_scale,
          .scale_bytes = static_cast<int>(size_of(format.scale_dtype)),
          .is_unsigned = format.is_unsigned};
}

size_t group_panel_bytes(const GroupLayout& layout, int64_t n) {
  return static_cast<size_t>(ceil_div<int64_t>(n, kPanelLanes) * layout.panel_bytes());
}

void pack_group_rows(const GroupLayout& layout, int64_t first_row, const GroupedRows& source,
                     std::byte* panels) {
  const int64_t end = first_row + source.rows;
  for (int64_t begin = first_row; begin < end;) {
    const int64_t panel_end = std::min(end, (begin / kPanelLanes + 1) * kPanelLanes);
    std::byte* panel = panel_of(layout, begin, panels);
    const int64_t rows = panel_end - begin;
    const int64_t lane = begin % kPanelLanes;
    pack_scale_blocks(layout, source, begin - first_row, rows, lane, panel);
    for (int64_t group = 0; group < layout.groups; ++group) {
      pack_group(layout, source, begin - first_row, rows, group, lane,
                 group_of(layout, group, panel));
    }
    begin = panel_end;
  }
}

void unpack_group_row(const GroupLayout& layout, int64_t row, const std::byte* panels, float* out) {
  const std::byte* const panel = panel_of(layout, row, panels);
  const int64_t lane = row % kPanelLanes;
  for (int64_t group = 0; group < layout.groups; ++group) {
    const std::byte* const data = group_of(layout, group, panel) + layout.header_bytes();
    const float scale = header_of(layout, lane, panel, group);
    const float offset =
        layout.has_offsets ? header_of(layout, kPanelLanes + lane, panel, group) : 0.0f;
    const int64_t inputs = layout.inputs_of(group);
    for (int64_t i = 0; i < inputs; ++i) {
      const int integer = integer_at(layout, data, lane, i);
      const float scaled = scale * static_cast<float>(integer);
      *out++ = layout.has_offsets ? scaled + offset : scaled;
    }
  }
}

// As header_of, in loops that compilers vectorise.
void unpack_header(const GroupLayout& layout, const std::byte* panel, int64_t group, float* out) {
  const std::byte* const header = group_of(layout, group, panel);
  const int64_t count = layout.block_floats();
  if (layout.scale_bytes == 4) {
    std::memcpy(out, header, static_cast<size_t>(layout.header_bytes()));
  } else if (layout.scale_bytes == 2) {
    const auto* values = reinterpret_cast<const BFloat16*>(header);
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(values[i]);
  } else {
    const auto* factors = reinterpret_cast<const int8_t*>(header);
    const float* const block =
        reinterpret_cast<const float*>(panel) + group / layout.groups_per_block() * count;
    for (int64_t i = 0; i < count; ++i) out[i] = block[i] * static_cast<float>(factors[i]);
  }
}

void unpack_group(const GroupLayout& layout, const std::byte* panel, int64_t group, float* out) {
  float scales[2 * kPanelLanes];
  const float* const offsets = scales + kPanelLanes;
  unpack_header(layout, panel, group, scales);
  const std::byte* const data = group_of(layout, group, panel) + layout.header_bytes();
  const int64_t inputs = layout.inputs_of(group);
  const int64_t step_inputs = layout.four_bits ? 8 : 4;
  const int mask = layout.four_bits ? 15 : 255;
  const int excess = layout.excess();
  for (int64_t i = 0; i < inputs; ++i, out += kPanelLanes) {
    // A step's words, one a lane, have the input's number at the same place.
    int32_t words[kPanelLanes];
    std::memcpy(words, data + i / step_inputs * static_cast<int64_t>(sizeof(words)), sizeof(words));
    const auto shift = static_cast<int>(8 * (i % 4) + (i % step_inputs < 4 ? 0 : 4));
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      const int integer = (words[lane] >> shift & mask) - excess;
      out[lane] = scales[lane] * static_cast<float>(integer);
    }
    for (int64_t lane = 0; layout.has_offsets && lane < kPanelLanes; ++lane) {
      out[lane] += offsets[lane];
    }
  }
}

}  // namespace quire::ops
