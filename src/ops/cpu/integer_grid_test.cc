#include "ops/cpu/integer_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace quire::ops {
namespace {

constexpr int kGroup = 32;

std::vector<float> random_group(float mean, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, 1.0f);
  std::vector<float> values(kGroup);
  for (float& value : values) value = normal(random);
  return values;
}

double grid_error(const IntegerType& type, const IntegerGrid& grid,
                  const std::vector<float>& values) {
  std::vector<int8_t> integers(values.size());
  round_to_grid(type, grid, values.data(), kGroup, integers.data());
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_GE(integers[i], type.lowest());
    EXPECT_LE(integers[i], type.highest());
    const double difference = grid.value(integers[i]) - values[i];
    error += difference * difference;
  }
  return error;
}

// The grid that reaches from the least to the greatest value.
IntegerGrid whole_range(const IntegerType& type, const std::vector<float>& values) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (type.symmetric) return {std::max(-*low, *high) / type.highest(), 0};
  const float least = std::min(*low, 0.0f), most = std::max(*high, 0.0f);
  const float scale = (most - least) / (type.highest() - type.lowest());
  return {scale, std::nearbyint(type.lowest() - least / scale)};
}

TEST(IntegerGrid, ErrorsAreSmallerThanThoseOfTheWholeRange) {
  for (const int bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      const IntegerType type = {
          .bits = bits, .symmetric = symmetric, .scale_dtype = DType::kFloat32};
      for (unsigned seed = 0; seed < 50; ++seed) {
        const std::vector<float> values = random_group(seed % 3 == 0 ? 2.0f : 0.0f, seed);
        const IntegerGrid grid = fit_integer_grid(type, values.data(), kGroup);
        EXPECT_LE(grid_error(type, grid, values),
                  grid_error(type, whole_range(type, values), values) * 1.0001);
      }
    }
  }
}

TEST(IntegerGrid, ScalesAreAsTheyAreStored) {
  const std::vector<float> values = random_group(0, 7);
  const IntegerType type = {.bits = 4, .symmetric = true, .scale_dtype = DType::kBFloat16};
  const float scale = fit_integer_grid(type, values.data(), kGroup).scale;
  EXPECT_EQ(scale, static_cast<float>(BFloat16(scale)));
}

TEST(IntegerGrid, WhatTheIntegersCanSayIsExact) {
  std::vector<float> values(kGroup);
  for (int i = 0; i < kGroup; ++i)
    values[static_cast<size_t>(i)] = 0.25f * static_cast<float>(i % 16 - 5);
  const IntegerType type = {.bits = 4, .symmetric = false, .scale_dtype = DType::kFloat32};
  const IntegerGrid grid = fit_integer_grid(type, values.data(), kGroup);
  EXPECT_EQ(grid.scale, 0.25f);
  EXPECT_EQ(grid.zero_point, -3);
  EXPECT_EQ(grid_error(type, grid, values), 0);
}

TEST(IntegerGrid, ZerosStayZerosAndNumbersThatAreNoneAreSaid) {
  for (const bool symmetric : {true, false}) {
    const IntegerType type = {.bits = 4, .symmetric = symmetric, .scale_dtype = DType::kBFloat16};
    std::vector<float> values(kGroup);
    const IntegerGrid grid = fit_integer_grid(type, values.data(), kGroup);
    EXPECT_GT(grid.scale, 0);
    EXPECT_EQ(grid_error(type, grid, values), 0);
    values[3] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(fit_integer_grid(type, values.data(), kGroup).scale));
  }
}

}  // namespace
}  // namespace quire::ops
