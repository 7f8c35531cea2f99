#include "layers/gguf_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/gguf_blocks.h"
#include "quire/error.h"

namespace quire {
namespace {

// Rows that are decoded before they are packed: as many as lie side by side in memory, so that it
// is written once and in order.
constexpr int64_t kDecodedRows = 64;

// The offset of a number that has none: adding it keeps the sign of zeros.
constexpr float kNoOffset = -0.0f;

// Without a branch in the loop, so that compilers use vectors.
bool are_finite(const float* values, int64_t count) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    wrong |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1u : 0u;
  }
  return wrong == 0;
}

// A few rows of integers with their scales and offsets, as a weight's format has them.
struct DecodedRows {
  int64_t k;
  int64_t group_size;
  int64_t groups;
  bool has_factors;  // scales and offsets are int8, times a float of each block
  int64_t blocks;    // of a row; of groups where scales are not int8
  std::vector<int8_t> integers;
  std::vector<float> scales;  // [rows, blocks]
  std::vector<float> offsets;
  std::vector<int8_t> scale_factors;  // [rows, groups]; none where scales are not int8
  std::vector<int8_t> offset_factors;

  explicit DecodedRows(const ops::Weight& weight)
      : k(weight.k()),
        group_size(weight.format().group_size),
        groups(ceil_div(k, group_size)),
        has_factors(weight.format().scale_dtype == DType::kInt8),
        blocks(has_factors ? ceil_div(k, ops::kScaleBlock) : groups),
        integers(static_cast<size_t>(kDecodedRows * k)),
        scales(static_cast<size_t>(kDecodedRows * blocks)),
        offsets(scales.size(), kNoOffset),
        scale_factors(static_cast<size_t>(has_factors ? kDecodedRows * groups : 0)),
        offset_factors(scale_factors.size()) {}

  bool has_finite_scales(int64_t rows) const {
    return are_finite(scales.data(), rows * blocks) && are_finite(offsets.data(), rows * blocks);
  }

  void pack(int64_t first_row, int64_t rows, ops::Weight& weight) const {
    const bool has_offsets = weight.format().has_offsets;
    weight.pack_groups(
        first_row,
        {.rows = rows,
         .data = integers.data(),
         .scales = scales.data(),
         .offsets = has_offsets ? offsets.data() : nullptr,
         .scale_factors = has_factors ? scale_factors.data() : nullptr,
         .offset_factors = has_factors && has_offsets ? offset_factors.data() : nullptr});
  }
};

// Repeats each factor `shared` times, as far as `count` go. Copies of a size that compilers know
// are single instructions, and there are tens of millions of factors.
void spread_factors(const int8_t* factors, int64_t shared, int64_t count, int8_t* out) {
  if (shared == 1 && count == 16) {
    std::memcpy(out, factors, 16);
  } else if (shared == 1 && count == 8) {
    std::memcpy(out, factors, 8);
  } else {
    for (int64_t first = 0; first < count; first += shared, ++factors) {
      std::fill_n(out + first, std::min(shared, count - first), *factors);
    }
  }
}

// Decodes rows of blocks and takes their columns from `first_column` of the first block on.
class RowDecoder {
 public:
  RowDecoder(const GgufType& type, int64_t num_blocks, int64_t first_column)
      : type_(type),
        of_type_(*gguf_integers(type)),
        num_blocks_(num_blocks),
        first_column_(first_column),
        integers_(static_cast<size_t>(num_blocks * type.block_values)),
        scales_(static_cast<size_t>(num_blocks * type.block_values / of_type_.group_size)),
        offsets_(scales_.size(), kNoOffset) {}

  void decode(const std::byte* blocks, int64_t row, DecodedRows& out) {
    int8_t* const integers = out.integers.data() + row * out.k;
    const bool is_whole = static_cast<int64_t>(integers_.size()) == out.k;
    int8_t* const decoded = is_whole ? integers : integers_.data();
    if (out.has_factors) {
      of_type_.decode_integers(blocks, num_blocks_, decoded);
      take_factors(blocks, row, out);
    } else {
      of_type_.decode(blocks, num_blocks_, decoded, scales_.data(), offsets_.data());
      take_scales(row, out);
    }
    if (!is_whole) std::copy_n(integers_.begin() + first_column_, out.k, integers);
  }

 private:
  void take_scales(int64_t row, DecodedRows& out) const {
    const bool is_whole = static_cast<int64_t>(integers_.size()) == out.k;
    const bool has_same_groups = is_whole && out.group_size == of_type_.group_size;
    for (int64_t group = 0; group < out.groups; ++group) {
      const int64_t first = first_column_ + group * out.group_size;
      const auto from = static_cast<size_t>(has_same_groups ? group : first / of_type_.group_size);
      const auto to = static_cast<size_t>(row * out.groups + group);
      out.scales[to] = scales_[from];
      out.offsets[to] = offsets_[from];
    }
  }

  // Where scales are int8, rows begin with a block.
  void take_factors(const std::byte* blocks, int64_t row, DecodedRows& out) const {
    const int64_t groups_per_block = ops::kScaleBlock / out.group_size;
    const int64_t shared = of_type_.group_size / out.group_size;  // groups of one of the type's
    for (int64_t block = 0; block < out.blocks; ++block) {
      const GgufFactors factors = of_type_.factors(blocks + block * type_.block_bytes);
      const auto to = static_cast<size_t>(row * out.blocks + block);
      out.scales[to] = factors.scale;
      out.offsets[to] = factors.offset;
      const int64_t first = block * groups_per_block;
      const int64_t count = std::min(groups_per_block, out.groups - first);
      int8_t* const scale_factors = out.scale_factors.data() + row * out.groups + first;
      int8_t* const offset_factors = out.offset_factors.data() + row * out.groups + first;
      spread_factors(factors.scales, shared, count, scale_factors);
      if (of_type_.has_offsets) spread_factors(factors.offsets, shared, count, offset_factors);
    }
  }

  const GgufType& type_;
  const GgufIntegers& of_type_;
  int64_t num_blocks_;
  int64_t first_column_;
  std::vector<int8_t> integers_;
  std::vector<float> scales_;
  std::vector<float> offsets_;
};

}  // namespace

void pack_gguf_rows(const GgufType& type, const Tensor& blocks, IndexRange columns,
                    int64_t first_row, ops::Weight& weight) {
  check(blocks.dtype() == DType::kUInt8 && blocks.dim(1) % type.block_bytes == 0,
        "rows are whole blocks");
  check(columns.size() == weight.k(), "the columns are the weight's inputs");
  RowDecoder decoder(type, blocks.dim(1) / type.block_bytes, columns.begin % type.block_values);
  DecodedRows decoded(weight);
  for (int64_t first = 0; first < blocks.dim(0); first += kDecodedRows) {
    const int64_t rows = std::min(kDecodedRows, blocks.dim(0) - first);
    for (int64_t row = 0; row < rows; ++row) {
      decoder.decode(reinterpret_cast<const std::byte*>(blocks.row<uint8_t>(first + row)), row,
                     decoded);
    }
    if (!decoded.has_finite_scales(rows)) {
      throw Error("a block has a scale that is infinite or no number; expected finite scales.");
    }
    decoded.pack(first_row + first, rows, weight);
  }
}

void pack_dummy_rows(const Tensor& source, int64_t first_row, ops::Weight& weight) {
  const ops::WeightFormat& format = weight.format();
  // -kDummyBound is the lowest integer of a signed format, and kDummyBound one more than the
  // highest.
  const float half_range = format.kind == ops::WeightKind::kInt4 ? 8.0f : 128.0f;
  const float scale = kDummyBound / half_range;
  const float shift = format.is_unsigned ? half_range : 0.0f;
  DecodedRows rounded(weight);
  std::fill(rounded.scales.begin(), rounded.scales.end(), scale);
  std::fill(rounded.offsets.begin(), rounded.offsets.end(), -scale * shift);
  std::fill(rounded.scale_factors.begin(), rounded.scale_factors.end(), int8_t{1});
  std::fill(rounded.offset_factors.begin(), rounded.offset_factors.end(), int8_t{1});
  for (int64_t first = 0; first < source.dim(0); first += kDecodedRows) {
    const int64_t rows = std::min(kDecodedRows, source.dim(0) - first);
    for (int64_t row = 0; row < rows; ++row) {
      const float* values = source.row<float>(first + row);
      std::transform(
          values, values + rounded.k, rounded.integers.begin() + row * rounded.k, [=](float value) {
            const float nearest = std::nearbyint(value / scale);
            return static_cast<int8_t>(std::clamp(nearest, -half_range, half_range - 1) + shift);
          });
    }
    rounded.pack(first_row + first, rows, weight);
  }
}

}  // namespace quire
