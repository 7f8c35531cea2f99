#include "ops/cpu/group_panels.h"

#include <algorithm>
#include <cstring>
#include <vector>

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

// `rows` as words of groups of this layout.
void set_groups(const GroupLayout& layout, WordRows& rows) {
  rows.group_words = layout.group_size / (layout.four_bits ? 8 : 4);
  rows.group_bytes = layout.group_bytes();
}

// A panel's lanes `lane` and after it: `rows` of the source's, from `first` on.
struct PanelRows {
  int64_t first;
  int64_t rows;
  int64_t lane;
};

// Whole groups of integers, a byte each. Rows begin row_bytes apart, and `rows_behind` more rows
// follow these.
void pack_data(const GroupLayout& layout, const int8_t* data, int64_t row_bytes, int64_t rows,
               int64_t groups, int64_t rows_behind, std::byte* out) {
  if (!layout.four_bits) {
    WordRows words =
        word_rows(data, row_bytes, rows, groups * layout.group_size / 4, out, rows_behind);
    set_groups(layout, words);
    words.flip = static_cast<uint32_t>(layout.excess()) * 0x01010101u;
    return interleave_words(words);
  }
  // As many groups at a time as fill a line.
  constexpr int64_t kMaxWords = kWholeRowGroup / 8;
  const int64_t step = kWholeRowGroup / layout.group_size;
  uint32_t joined[kPanelLanes][kMaxWords];
  for (int64_t group = 0; group < groups; group += step) {
    const int64_t count = std::min(step, groups - group) * layout.group_size / 8;
    for (int64_t row = 0; row < rows; ++row) {
      join_halves(layout, data + row * row_bytes + group * layout.group_size, count, joined[row]);
    }
    WordRows words =
        word_rows(joined, sizeof(joined[0]), rows, count, out + group * layout.group_bytes());
    set_groups(layout, words);
    interleave_words(words);
  }
}

// Words as they are stored.
void pack_words(const GroupLayout& layout, const GroupedRows& source, const PanelRows& part,
                std::byte* out) {
  WordRows rows =
      word_rows(source.words + part.first * source.word_stride,
                source.word_stride * static_cast<int64_t>(sizeof(uint32_t)), part.rows,
                layout.k / (layout.four_bits ? 8 : 4), out, source.rows - part.first - part.rows);
  set_groups(layout, rows);
  rows.orders_halves = layout.four_bits;
  interleave_words(rows);
}

// The integers of all groups.
void pack_integers(const GroupLayout& layout, const GroupedRows& source, const PanelRows& part,
                   std::byte* panel) {
  std::byte* const out = group_of(layout, 0, panel) + layout.header_bytes() + part.lane * 4;
  if (source.words != nullptr) return pack_words(layout, source, part, out);
  const int64_t whole = layout.k / layout.group_size;
  const int8_t* const data = source.data + part.first * layout.k;
  pack_data(layout, data, layout.k, part.rows, whole, source.rows - part.first - part.rows, out);
  if (whole == layout.groups) return;
  const int64_t inputs = layout.inputs_of(whole);
  int8_t padded[kPanelLanes][kWholeRowGroup] = {};
  for (int64_t row = 0; row < part.rows; ++row) {
    std::copy_n(data + row * layout.k + whole * layout.group_size, inputs, padded[row]);
  }
  pack_data(layout, padded[0], kWholeRowGroup, part.rows, 1, 0, out + whole * layout.group_bytes());
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

// Scales or offsets that are not int8, of all groups of a panel's lanes `lane` and after it, `at`
// behind each group's beginning.
void pack_floats(const GroupLayout& layout, const float* values, int64_t rows, int64_t lane,
                 int64_t at, std::byte* panel) {
  const int64_t groups = layout.one_scale ? 1 : layout.groups;
  const int64_t row_bytes = groups * static_cast<int64_t>(sizeof(float));
  if (layout.scale_bytes == 4 && !layout.one_scale) {
    WordRows words = word_rows(values, row_bytes, rows, groups,
                               group_of(layout, 0, panel) + at + lane * layout.scale_bytes);
    words.group_words = 1;
    words.group_bytes = layout.group_bytes();
    return interleave_words(words);
  }
  // [groups][kPanelLanes]; the first `rows` lanes are filled.
  std::vector<float> lanes(static_cast<size_t>(groups * kPanelLanes));
  interleave_words(word_rows(values, row_bytes, rows, groups, lanes.data()));
  for (int64_t group = 0; group < layout.groups; ++group) {
    const float* const from = lanes.data() + (layout.one_scale ? 0 : group * kPanelLanes);
    std::byte* const header = group_of(layout, group, panel) + at + lane * layout.scale_bytes;
    if (layout.scale_bytes == 2) {
      auto* const to = reinterpret_cast<BFloat16*>(header);
      for (int64_t row = 0; row < rows; ++row) to[row] = BFloat16(from[row]);
    } else {
      std::memcpy(header, from, static_cast<size_t>(rows) * sizeof(float));
    }
  }
}

// int8 scales or offsets of all groups in lanes `lane` and after it, `at` behind each group's
// beginning: [rows, groups].
void pack_factors(const GroupLayout& layout, const int8_t* factors, int64_t rows, int64_t lane,
                  int64_t at, std::byte* panel) {
  std::byte* const first = group_of(layout, 0, panel) + at + lane;
  int64_t group = 0;
  for (; group + 4 <= layout.groups; group += 4) {
    uint32_t words[kPanelLanes];
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(words + row, factors + row * layout.groups + group, sizeof(words[0]));
    }
    for (int64_t i = 0; i < 4; ++i) {
      std::byte* const out = first + (group + i) * layout.group_bytes();
      for (int64_t row = 0; row < rows; ++row) {
        out[row] = static_cast<std::byte>(words[row] >> (8 * i));
      }
    }
  }
  for (; group < layout.groups; ++group) {
    std::byte* const out = first + group * layout.group_bytes();
    for (int64_t row = 0; row < rows; ++row) {
      out[row] = static_cast<std::byte>(factors[row * layout.groups + group]);
    }
  }
}

// What int8 scales and offsets are multiplied by, of the source's rows from `first` on.
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

// The headers of all groups, and what int8 ones are multiplied by.
void pack_headers(const GroupLayout& layout, const GroupedRows& source, int64_t first, int64_t rows,
                  int64_t lane, std::byte* panel) {
  if (layout.scale_bytes == 1) {
    pack_scale_blocks(layout, source, first, rows, lane, panel);
    const int64_t begin = first * layout.groups;
    pack_factors(layout, source.scale_factors + begin, rows, lane, 0, panel);
    if (!layout.has_offsets) return;
    return pack_factors(layout, source.offset_factors + begin, rows, lane, kPanelLanes, panel);
  }
  const int64_t begin = first * (layout.one_scale ? 1 : layout.groups);
  pack_floats(layout, source.scales + begin, rows, lane, 0, panel);
  if (!layout.has_offsets) return;
  pack_floats(layout, source.offsets + begin, rows, lane, kPanelLanes * layout.scale_bytes, panel);
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
    const PanelRows part = {
        .first = begin - first_row, .rows = panel_end - begin, .lane = begin % kPanelLanes};
    pack_headers(layout, source, part.first, part.rows, part.lane, panel);
    pack_integers(layout, source, part, panel);
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
