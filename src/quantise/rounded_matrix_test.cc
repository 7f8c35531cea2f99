#include "quantise/rounded_matrix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quire {
namespace {

// Weights as small as float16's smallest normal numbers have float8 scales far below them.
TEST(RoundedMatrix, Float8ScalesOfFloat16ModelsHoldSmallWeights) {
  constexpr int64_t kOutputs = 3;
  constexpr int64_t kInputs = 16;
  std::vector<float> values;
  for (int i = 0; i < kOutputs * kInputs; ++i) {
    values.push_back((i % 2 == 0 ? 6e-5f : -6e-5f) * static_cast<float>(i % 7 + 1) / 7);
  }
  RoundingTarget target;
  target.scheme.layout = WeightLayout::kFloat8;
  target.scale_dtype = scale_dtype_for(DType::kFloat16);
  ThreadPool pool(1);
  const EndableLoops loops(pool);
  const RoundedMatrix rounded = round_to_nearest(target, values, kOutputs, kInputs, loops);
  std::vector<float> stands_for(values.size());
  dequantise(target, rounded, stands_for.data(), loops);
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(stands_for[i], values[i], std::abs(values[i]) / 16) << i;
  }
}

TEST(RoundedMatrix, ScalesHaveTheModelsTypeUnlessItIsFloat16) {
  EXPECT_EQ(scale_dtype_for(DType::kFloat32), DType::kFloat32);
  EXPECT_EQ(scale_dtype_for(DType::kBFloat16), DType::kBFloat16);
  EXPECT_EQ(scale_dtype_for(DType::kFloat16), DType::kBFloat16);
}

}  // namespace
}  // namespace quire
