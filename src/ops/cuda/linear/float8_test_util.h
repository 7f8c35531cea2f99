#pragma once
// What the tests of float8 products share: operands that are rounded on the host as the kernels
// round them, and products of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {

// Tests of kernels that only devices of compute capability 9.0 have.
class Float8CudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (stream().compute_capability() != 90) GTEST_SKIP() << "The kernels are for devices of 9.0.";
  }
};

inline constexpr int64_t kFloat8Groups[] = {0, 128};
inline constexpr DType kHalfTypes[] = {DType::kBFloat16, DType::kFloat16};

inline size_t index_of(int64_t value) {
  return static_cast<size_t>(value);
}

// A matrix of float8, rows of k, as the kernels round activations.
struct RoundedRows {
  std::vector<uint8_t> codes;
  std::vector<float> numbers;  // of the codes
  std::vector<float> scales;   // [rows, groups]
};

inline RoundedRows round_rows(const std::vector<float>& values, int64_t rows, int64_t k,
                              int64_t stride, int64_t group_size) {
  RoundedRows rounded;
  const int64_t group = group_size != 0 ? group_size : k;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t first = 0; first < k; first += group) {
      float greatest = 0;
      for (int64_t i = first; i < first + group; ++i) {
        greatest = std::max(greatest, std::abs(values[index_of(row * stride + i)]));
      }
      const float scale = std::max(greatest / 448.0f, 1e-36f);
      const float inverse = 1.0f / scale;
      rounded.scales.push_back(scale);
      for (int64_t i = first; i < first + group; ++i) {
        rounded.codes.push_back(e4m3_of_float(values[index_of(row * stride + i)] * inverse));
        rounded.numbers.push_back(float_of_e4m3(rounded.codes.back()));
      }
    }
  }
  return rounded;
}

// Rows of different magnitudes with some much larger numbers, and some rows of nothing but zeros.
inline std::vector<float> random_activations(DType dtype, int64_t rows, int64_t stride,
                                             std::mt19937& random) {
  std::vector<float> values = random_values(index_of(rows * stride), random);
  for (int64_t row = 0; row < rows; ++row) {
    const float scale = row % 11 == 5 ? 0.0f : std::ldexp(1.0f, -static_cast<int>(row % 7));
    for (int64_t i = 0; i < stride; ++i) {
      values[index_of(row * stride + i)] *= scale * ((row + i) % 97 == 3 ? 30.0f : 1.0f);
    }
  }
  return rounded(dtype, values);
}

// A weight [n, k] and its scales.
class Float8Weight {
 public:
  Float8Weight(int64_t n, int64_t k, int64_t group_size, std::mt19937& random)
      : k_(k), group_size_(group_size) {
    constexpr float kDeviation = 60;
    // A prime number of them, so that no two rows are alike.
    const auto some = rounded(DType::kFloat8E4M3, random_values(65521, random, kDeviation));
    for (int64_t i = 0; i < n * k; ++i) numbers_.push_back(some[index_of(i) % some.size()]);
    const int64_t num_scales = group_size != 0 ? ceil_div(n, 128) * (k / 128) : n;
    std::uniform_real_distribution<float> exponent(-1, 1);
    for (int64_t i = 0; i < num_scales; ++i) {
      scales_.push_back(std::exp2(exponent(random)) /
                        (kDeviation * std::sqrt(static_cast<float>(k))));
    }
    data_.emplace(DType::kFloat8E4M3, numbers_);
    device_scales_.emplace(scales_);
  }

  WeightView view() {
    return {.format = WeightFormat::float8(group_size_),
            .data = data_->data(),
            .scales = device_scales_->data()};
  }
  const float* row(int64_t n) const { return &numbers_[index_of(n * k_)]; }
  float scale(int64_t n, int64_t block) const {
    return scales_[index_of(group_size_ != 0 ? n / 128 * (k_ / 128) + block : n)];
  }

 private:
  int64_t k_;
  int64_t group_size_;
  std::vector<float> numbers_;
  std::vector<float> scales_;
  std::optional<DeviceElements> data_;
  std::optional<DeviceArray<float>> device_scales_;
};

// out = in * weight^T: contiguous matrices, no bias.
inline CudaLinear plain_product(DeviceElements& in, const WeightView& weight, int64_t rows,
                                int64_t n, int64_t k, DeviceElements& out,
                                DeviceArray<std::byte>& scratch) {
  return {.dtype = in.dtype(),
          .in = in.data(),
          .in_stride = k,
          .weight = weight,
          .rows = rows,
          .n = n,
          .k = k,
          .bias = nullptr,
          .out = out.data(),
          .out_stride = n,
          .out_dtype = out.dtype(),
          .silu_and_mul = false,
          .scratch = scratch.data()};
}

}  // namespace quire::ops
