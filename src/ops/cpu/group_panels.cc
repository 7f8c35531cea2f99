#include "ops/cpu/group_panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "core/dtype.h"

namespace quire::ops {
namespace {

// Groups are visited in blocks of about this many inputs, so that the lines that a block touches,
// 64 lanes of it, stay in the cache until the panel's other rows have filled them.
constexpr int64_t kPackInputs = 256;

// A row's place in its panel's first group.
template <typename Byte>
Byte* first_group(const GroupLayout& layout, int64_t row, Byte* panels) {
  return panels + row / kPanelLanes * layout.panel_bytes();
}

// Four int8 as bytes with the layout's excess; int4 in the low halves.
uint32_t biased(const GroupLayout& layout, const int8_t* data) {
  uint32_t word;
  std::memcpy(&word, data, sizeof(word));
  word ^= static_cast<uint32_t>(layout.excess()) * 0x01010101u;
  return layout.four_bits ? word & 0x0f0f0f0fu : word;
}

// The group_size integers of one lane.
void pack_data(const GroupLayout& layout, const int8_t* data, int64_t lane, std::byte* out) {
  const int64_t step_inputs = layout.four_bits ? 8 : 4;
  out += lane * 4;
  for (int64_t i = 0; i < layout.group_size; i += step_inputs, out += kPanelLanes * 4) {
    uint32_t word = biased(layout, data + i);
    if (layout.four_bits) word |= biased(layout, data + i + 4) << 4;
    std::memcpy(out, &word, sizeof(word));
  }
}

// Number `i` of a group's scales and offsets.
void set_header(const GroupLayout& layout, int64_t i, float value, std::byte* group) {
  if (layout.short_scales) {
    reinterpret_cast<BFloat16*>(group)[i] = BFloat16(value);
  } else {
    reinterpret_cast<float*>(group)[i] = value;
  }
}
float header_of(const GroupLayout& layout, int64_t i, const std::byte* group) {
  return layout.short_scales ? static_cast<float>(reinterpret_cast<const BFloat16*>(group)[i])
                             : reinterpret_cast<const float*>(group)[i];
}

void pack_group(const GroupLayout& layout, const GroupedRows& source, int64_t source_row,
                int64_t group, int64_t lane, std::byte* out) {
  const int64_t at = layout.one_scale ? source_row : source_row * layout.groups + group;
  set_header(layout, lane, source.scales[at], out);
  if (layout.has_offsets) set_header(layout, kPanelLanes + lane, source.offsets[at], out);
  const int8_t* data = source.data + source_row * layout.k + group * layout.group_size;
  const int64_t inputs = layout.inputs_of(group);
  int8_t padded[kWholeRowGroup] = {};
  if (inputs < layout.group_size) {
    std::copy_n(data, inputs, padded);
    data = padded;
  }
  pack_data(layout, data, lane, out + layout.header_bytes());
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
          .short_scales = format.scale_dtype == DType::kBFloat16,
          .is_unsigned = format.is_unsigned};
}

size_t group_panel_bytes(const GroupLayout& layout, int64_t n) {
  return static_cast<size_t>(ceil_div<int64_t>(n, kPanelLanes) * layout.panel_bytes());
}

void pack_group_rows(const GroupLayout& layout, int64_t first_row, const GroupedRows& source,
                     std::byte* panels) {
  const int64_t end = first_row + source.rows;
  const int64_t block = kPackInputs / layout.group_size;
  for (int64_t begin = first_row; begin < end;) {
    const int64_t panel_end = std::min(end, (begin / kPanelLanes + 1) * kPanelLanes);
    std::byte* panel = first_group(layout, begin, panels);
    for (int64_t first = 0; first < layout.groups; first += block) {
      const int64_t last = std::min(layout.groups, first + block);
      for (int64_t row = begin; row < panel_end; ++row) {
        for (int64_t group = first; group < last; ++group) {
          pack_group(layout, source, row - first_row, group, row % kPanelLanes,
                     panel + group * layout.group_bytes());
        }
      }
    }
    begin = panel_end;
  }
}

void unpack_group_row(const GroupLayout& layout, int64_t row, const std::byte* panels, float* out) {
  const std::byte* in = first_group(layout, row, panels);
  const int64_t lane = row % kPanelLanes;
  for (int64_t group = 0; group < layout.groups; ++group, in += layout.group_bytes()) {
    const float scale = header_of(layout, lane, in);
    const float offset = layout.has_offsets ? header_of(layout, kPanelLanes + lane, in) : 0.0f;
    const int64_t inputs = layout.inputs_of(group);
    for (int64_t i = 0; i < inputs; ++i) {
      const int integer = integer_at(layout, in + layout.header_bytes(), lane, i);
      const float scaled = scale * static_cast<float>(integer);
      *out++ = layout.has_offsets ? scaled + offset : scaled;
    }
  }
}

void unpack_group(const GroupLayout& layout, const std::byte* group, int64_t inputs, float* out) {
  float scales[kPanelLanes], offsets[kPanelLanes];
  for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
    scales[lane] = header_of(layout, lane, group);
    offsets[lane] = layout.has_offsets ? header_of(layout, kPanelLanes + lane, group) : 0.0f;
  }
  const auto* data = reinterpret_cast<const uint8_t*>(group + layout.header_bytes());
  const int64_t step_inputs = layout.four_bits ? 8 : 4;
  const int mask = layout.four_bits ? 15 : 255;
  const int excess = layout.excess();
  for (int64_t i = 0; i < inputs; ++i, out += kPanelLanes) {
    const uint8_t* bytes = data + i / step_inputs * kPanelLanes * 4 + i % 4;
    const int shift = i % step_inputs < 4 ? 0 : 4;
    for (int64_t lane = 0; lane < kPanelLanes; ++lane) {
      const int integer = ((bytes[lane * 4] >> shift) & mask) - excess;
      out[lane] = scales[lane] * static_cast<float>(integer);
    }
    for (int64_t lane = 0; layout.has_offsets && lane < kPanelLanes; ++lane) {
      out[lane] += offsets[lane];
    }
  }
}

}  // namespace quire::ops
