// The inner loops of a matrix product without special instructions. How a product is cut into tiles
// for them is in linear_blocking.cc, how weights are packed in weight_panels.cc.
#include <cstring>

#include "core/dtype.h"
#include "ops/cpu/kernels.h"

namespace quire::ops::scalar {
namespace {

float from_bf16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

float weight_at(const void* weights, int64_t step, int lane, int, const float*) {
  return static_cast<const float*>(weights)[step * kPanelLanes + lane];
}

float weight_at(const void* weights, int64_t step, int lane, int value, const uint16_t*) {
  return from_bf16(static_cast<const uint16_t*>(weights)[(step * kPanelLanes + lane) * 2 + value]);
}

template <typename T, int kValues>
void linear(const LinearTile& tile) {
  const auto* a = static_cast<const float*>(tile.activations);
  for (int row = 0; row < tile.rows; ++row) {
    float* out = tile.out + row * tile.out_stride;
    float sum[kPanelLanes] = {};
    if (tile.accumulate) std::memcpy(sum, out, static_cast<size_t>(tile.cols) * sizeof(float));
    for (int64_t step = 0; step < tile.steps; ++step) {
      for (int value = 0; value < kValues; ++value) {
        const float x = a[(step * kValues + value) * tile.rows + row];
        for (int lane = 0; lane < kPanelLanes; ++lane) {
          sum[lane] +=
              x * weight_at(tile.weights, step, lane, value, static_cast<const T*>(nullptr));
        }
      }
    }
    for (int lane = 0; lane < tile.cols; ++lane) {
      out[lane] = tile.bias != nullptr ? sum[lane] + tile.bias[lane] : sum[lane];
    }
  }
}

}  // namespace

void pack_f32(const float* in, int64_t stride, int rows, int64_t k, float* out) {
  for (int64_t i = 0; i < k; ++i) {
    for (int row = 0; row < rows; ++row) out[i * rows + row] = in[row * stride + i];
  }
  if (k % 2 != 0) {
    for (int row = 0; row < rows; ++row) out[k * rows + row] = 0.0f;
  }
}

void linear_f32(const LinearTile& tile) {
  linear<float, 1>(tile);
}
void linear_bf16(const LinearTile& tile) {
  linear<uint16_t, 2>(tile);
}

// A step's weights are decoded once for all rows.
void linear_f8(const LinearTile& tile) {
  const auto* a = static_cast<const float*>(tile.activations);
  const auto* weights = static_cast<const Float8E4M3*>(tile.weights);
  float sums[kTileRows][kPanelLanes] = {};
  for (int row = 0; row < tile.rows && tile.accumulate; ++row) {
    std::memcpy(sums[row], tile.out + row * tile.out_stride,
                static_cast<size_t>(tile.cols) * sizeof(float));
  }
  for (int64_t step = 0; step < tile.steps; ++step, weights += kPanelLanes, a += tile.rows) {
    float w[kPanelLanes];
    for (int lane = 0; lane < kPanelLanes; ++lane) w[lane] = static_cast<float>(weights[lane]);
    for (int row = 0; row < tile.rows; ++row) {
      for (int lane = 0; lane < kPanelLanes; ++lane) sums[row][lane] += a[row] * w[lane];
    }
  }
  for (int row = 0; row < tile.rows; ++row) {
    float* out = tile.out + row * tile.out_stride;
    for (int lane = 0; lane < tile.cols; ++lane) {
      const float scaled =
          tile.scales != nullptr ? sums[row][lane] * tile.scales[lane] : sums[row][lane];
      out[lane] = tile.bias != nullptr ? scaled + tile.bias[lane] : scaled;
    }
  }
}

}  // namespace quire::ops::scalar
