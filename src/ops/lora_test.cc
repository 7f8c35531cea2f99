#include "ops/lora.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::ops {
namespace {

// A matrix with a stride, poisoned beside its columns.
struct LoraOutput {
  static constexpr int64_t kRows = 9;
  static constexpr int64_t kColumns = 5;
  static constexpr int64_t kStride = 8;

  LoraOutput() : values(kRows * kStride, -1000.0f) {
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t i = 0; i < kColumns; ++i) at(row, i) = static_cast<float>(10 * row + i);
    }
  }
  float& at(int64_t row, int64_t i) { return values[static_cast<size_t>(row * kStride + i)]; }
  Tensor tensor() {
    return Tensor(values.data(), DType::kFloat32, {kRows, kStride}).columns(0, kColumns);
  }

  std::vector<float> values;
};

Tensor vector_tensor(std::vector<float>& values) {
  return {values.data(), DType::kFloat32, {static_cast<int64_t>(values.size())}};
}

class LoraOps : public testing::TestWithParam<int> {
 protected:
  LoraOps() : pool_(GetParam()), stream_(pool_) {}

  ThreadPool pool_;
  Stream stream_;
};

INSTANTIATE_TEST_SUITE_P(Threads, LoraOps, testing::Values(1, 3));

TEST_P(LoraOps, AddsToTheRowsOfItsChoice) {
  LoraOutput out;
  const std::vector<int32_t> rows = {7, 0, 4};
  std::vector<float> delta = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  std::vector<float> added = {100, 200, 300, 400, 500};
  const LoraSum sum = {.delta = Tensor(delta.data(), DType::kFloat32, {3, 5}),
                       .scale = 0.5f,
                       .added = vector_tensor(added)};
  add_lora(stream_, rows, sum, out.tensor());
  LoraOutput expected;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int64_t i = 0; i < 5; ++i) {
      const auto at = static_cast<size_t>(i);
      expected.at(rows[r], i) += 0.5f * delta[5 * r + at] + added[at];
    }
  }
  EXPECT_EQ(out.values, expected.values);
}

TEST_P(LoraOps, ScalesWhatStandsBesideTheBias) {
  std::vector<float> factor = {1, 2, 3, 4, 0.5f};
  std::vector<float> bias = {1, 1, 2, 2, 4};
  std::vector<float> delta = {2, 4, 6, 8, 10};
  for (const bool has_bias : {false, true}) {
    LoraOutput out;
    const LoraSum sum = {.delta = Tensor(delta.data(), DType::kFloat32, {1, 5}),
                         .scale = 2,
                         .factor = vector_tensor(factor),
                         .bias = has_bias ? vector_tensor(bias) : Tensor()};
    add_lora(stream_, std::vector<int32_t>{8}, sum, out.tensor());
    LoraOutput expected;
    for (int64_t i = 0; i < 5; ++i) {
      const auto at = static_cast<size_t>(i);
      const float base = has_bias ? bias[at] : 0;
      expected.at(8, i) = factor[at] * (expected.at(8, i) - base + 2 * delta[at]) + base;
    }
    EXPECT_EQ(out.values, expected.values);
  }
}

TEST_P(LoraOps, NothingButABias) {
  LoraOutput out;
  std::vector<float> added = {1, 2, 3, 4, 5};
  add_lora(stream_, std::vector<int32_t>{2}, {.added = vector_tensor(added)}, out.tensor());
  LoraOutput expected;
  for (int64_t i = 0; i < 5; ++i) expected.at(2, i) += added[static_cast<size_t>(i)];
  EXPECT_EQ(out.values, expected.values);
}

TEST_P(LoraOps, ScattersRows) {
  LoraOutput out;
  std::vector<float> in = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  scatter_rows(stream_, Tensor(in.data(), DType::kFloat32, {2, 5}), std::vector<int32_t>{3, 1},
               out.tensor());
  LoraOutput expected;
  for (int64_t i = 0; i < 5; ++i) {
    expected.at(3, i) = in[static_cast<size_t>(i)];
    expected.at(1, i) = in[static_cast<size_t>(5 + i)];
  }
  EXPECT_EQ(out.values, expected.values);
}

}  // namespace
}  // namespace quire::ops
