// Products with integer weights without special instructions: what the kernels of instruction sets
// are compared with, bit for bit. How a product is cut into tiles for them is in group_linear.cc.
#include <cmath>
#include <cstring>

#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

constexpr int kMaxGroup = 128;
constexpr int kStepBytes = kPanelLanes * 4;

// A group of weights: of int8, int4, or int4 in int8's layout.
enum class Data { kInt8, kInt4, kUnpackedInt4 };

// The sum of the products of one row with a group's bytes, for each lane. `inputs` [steps][rows][4]
// is where the row's first four integers are.
template <Data kData>
void multiply_group(const uint8_t* data, const int8_t* inputs, int rows, int group_size,
                    int32_t* sums) {
  for (int i = 0; i < group_size; i += 4, inputs += rows * 4) {
    const bool high = kData == Data::kInt4 && i % 8 == 4;
    for (int lane = 0; lane < kPanelLanes; ++lane) {
      for (int j = 0; j < 4; ++j) {
        int byte = data[lane * 4 + j];
        if (kData == Data::kInt4) byte = high ? byte >> 4 : byte & 15;
        sums[lane] += byte * inputs[j];
      }
    }
    if (kData != Data::kInt4 || high) data += kStepBytes;
  }
}

// Of the scales, and of the offsets.
int header_bytes(const GroupTile& tile) {
  return kPanelLanes * tile.scale_bytes;
}

// What the tile's group has its int8 scales multiplied by, and behind them its offsets.
const float* block_of(const GroupTile& tile, int64_t group) {
  const int64_t floats = kPanelLanes * (tile.has_offsets ? 2 : 1);
  return tile.scale_blocks + ((tile.first_group + group) >> tile.block_shift) * floats;
}

// The scales or the offsets, which are at `from`; `block` is what they are multiplied by.
void load_header(const GroupTile& tile, const uint8_t* from, const float* block, float* values) {
  for (int lane = 0; lane < kPanelLanes; ++lane) {
    uint32_t bits = 0;
    if (tile.scale_bytes == 1) {
      values[lane] = block[lane] * static_cast<float>(static_cast<int8_t>(from[lane]));
      continue;
    }
    if (tile.scale_bytes == 2) {
      uint16_t half;
      std::memcpy(&half, from + 2 * lane, sizeof(half));
      bits = static_cast<uint32_t>(half) << 16;
    } else {
      std::memcpy(&bits, from + 4 * lane, sizeof(bits));
    }
    std::memcpy(values + lane, &bits, sizeof(bits));
  }
}

template <Data kData>
void multiply_row(const GroupTile& tile, int row) {
  float* out = tile.out + row * tile.out_stride;
  float sums[kPanelLanes] = {};
  if (tile.accumulate) std::memcpy(sums, out, static_cast<size_t>(tile.cols) * sizeof(float));
  const auto* weights = static_cast<const uint8_t*>(tile.weights);
  const auto* packed = static_cast<const int8_t*>(tile.activations);
  for (int64_t group = 0; group < tile.groups; ++group) {
    float scales[kPanelLanes], offsets[kPanelLanes];
    const float* block = block_of(tile, group);
    load_header(tile, weights, block, scales);
    if (tile.has_offsets) {
      load_header(tile, weights + header_bytes(tile), block + kPanelLanes, offsets);
    }
    const auto* starts = reinterpret_cast<const int32_t*>(packed);
    const auto* row_scales = reinterpret_cast<const float*>(packed + 4 * tile.rows);
    weights += header_bytes(tile) * (tile.has_offsets ? 2 : 1);
    int32_t products[kPanelLanes];
    for (int32_t& product : products) product = starts[row];
    multiply_group<kData>(weights, packed + 12 * tile.rows + 4 * row, tile.rows, tile.group_size,
                          products);
    for (int lane = 0; lane < kPanelLanes; ++lane) {
      sums[lane] =
          std::fma(static_cast<float>(products[lane]), scales[lane] * row_scales[row], sums[lane]);
      if (tile.has_offsets) {
        sums[lane] = std::fma(row_scales[tile.rows + row], offsets[lane], sums[lane]);
      }
    }
    weights += kPanelLanes * tile.group_size / (kData == Data::kInt4 ? 2 : 1);
    packed += (kInt8GroupHeader + tile.group_size) * tile.rows;
  }
  for (int lane = 0; lane < tile.cols; ++lane) {
    out[lane] = tile.bias != nullptr ? sums[lane] + tile.bias[lane] : sums[lane];
  }
}

template <Data kData>
void multiply(const GroupTile& tile) {
  for (int row = 0; row < tile.rows; ++row) multiply_row<kData>(tile, row);
}

// The inputs of a group of a row, and zeros after the row's end.
void take_group(const Int8Rows& rows, int row, int64_t first, float* values) {
  const float* in = rows.in + row * rows.stride;
  for (int i = 0; i < rows.group_size; ++i) {
    const int64_t at = first + i;
    values[i] = at >= rows.k ? 0.0f : in[rows.permutation != nullptr ? rows.permutation[at] : at];
  }
}

// The largest magnitude; a NaN counts as more than an infinity, that as more than any number.
float largest_magnitude(const float* values, int count) {
  uint32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bits &= 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  float magnitude;
  std::memcpy(&magnitude, &largest, sizeof(magnitude));
  return magnitude;
}

}  // namespace

void pack_i8(const Int8Rows& rows) {
  auto* out = static_cast<int8_t*>(rows.out);
  for (int64_t first = 0; first < rows.k; first += rows.group_size) {
    auto* starts = reinterpret_cast<int32_t*>(out);
    auto* scales = reinterpret_cast<float*>(out + 4 * rows.rows);
    int8_t* integers = out + 12 * rows.rows;
    for (int row = 0; row < rows.rows; ++row) {
      float values[kMaxGroup];
      take_group(rows, row, first, values);
      const float largest = largest_magnitude(values, rows.group_size);
      const float inverse = 127.0f / largest;
      // No number divided by a subnormal one may leave the range of floats.
      const bool rounds = std::isfinite(largest) && std::isfinite(inverse);
      const float scale = !std::isfinite(largest) ? std::nanf("") : rounds ? largest / 127.0f : 0;
      int32_t sum = 0;
      for (int i = 0; i < rows.group_size; ++i) {
        const auto integer =
            rounds ? static_cast<int8_t>(std::lrint(values[i] * inverse)) : int8_t{0};
        integers[(i / 4 * rows.rows + row) * 4 + i % 4] = integer;
        sum += integer;
      }
      starts[row] = -rows.excess * sum;
      scales[row] = scale;
      scales[rows.rows + row] = scale * static_cast<float>(sum);
    }
    out += (kInt8GroupHeader + rows.group_size) * rows.rows;
  }
}

void linear_i8(const GroupTile& tile) {
  multiply<Data::kInt8>(tile);
}
void linear_i4(const GroupTile& tile) {
  multiply<Data::kInt4>(tile);
}
void linear_unpacked_i4(const GroupTile& tile) {
  multiply<Data::kUnpackedInt4>(tile);
}

void unpack_i4(const void* data, int64_t bytes, void* out) {
  const auto* in = static_cast<const uint8_t*>(data);
  auto* unpacked = static_cast<uint8_t*>(out);
  for (int64_t step = 0; step < bytes; step += kStepBytes, unpacked += 2 * kStepBytes) {
    for (int i = 0; i < kStepBytes; ++i) {
      unpacked[i] = in[step + i] & 15;
      unpacked[kStepBytes + i] = in[step + i] >> 4;
    }
  }
}

}  // namespace quire::ops::scalar
