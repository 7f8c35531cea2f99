#include "ops/cpu/sampling_scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/ceil_div.h"

namespace quire::ops {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> ids_of(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> ids;
  ids.reserve(candidates.size());
  for (const Candidate& c : candidates) ids.push_back(c.id);
  std::ranges::sort(ids);
  return ids;
}

// Rows of every length around the sizes of blocks, with ties and NaN.
class SamplingScanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 engine(1);
    for (const size_t size : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 1000}) {
      std::vector<float>& row = rows_.emplace_back(size);
      for (float& logit : row) logit = static_cast<float>(engine() % 200) / 8 - 12;
      row[size / 2] = kNotANumber;
      row[size / 3] = -kInfinite;
      row[0] = 1;
    }
  }

  std::vector<std::vector<float>> rows_;
  std::vector<float> maxima_;
  std::vector<Candidate> found_;
};

TEST_F(SamplingScanTest, FindsTheMaximumAndItsFirstPlace) {
  for (const auto& row : rows_) {
    block_maxima(row, maxima_);
    ASSERT_EQ(maxima_.size(), ceil_div(row.size(), kScanBlock));
    int32_t best = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      if (row[i] > row[static_cast<size_t>(best)]) best = static_cast<int32_t>(i);
    }
    const float max = *std::ranges::max_element(maxima_);
    EXPECT_EQ(max, row[static_cast<size_t>(best)]);
    EXPECT_EQ(first_of_maximum(row, maxima_, max), best);
  }
}

TEST_F(SamplingScanTest, CollectsWhatReachesTheThreshold) {
  for (const auto& row : rows_) {
    block_maxima(row, maxima_);
    for (const float threshold : {-1e30f, 0.0f, 12.0f, 99.0f}) {
      std::vector<int32_t> expected;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] >= threshold) expected.push_back(static_cast<int32_t>(i));
      }
      collect(row, maxima_, threshold, found_);
      EXPECT_EQ(ids_of(found_), expected);
    }
  }
}

TEST_F(SamplingScanTest, CollectsTheTopWithItsTies) {
  for (const auto& row : rows_) {
    block_maxima(row, maxima_);
    std::vector<float> finite;
    std::ranges::copy_if(row, std::back_inserter(finite),
                         [](float logit) { return std::isfinite(logit); });
    std::ranges::sort(finite, std::greater<>());
    for (const size_t count : {size_t{1}, size_t{3}, size_t{40}, row.size()}) {
      const float lowest = finite[std::min(count, finite.size()) - 1];
      std::vector<int32_t> expected;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] >= lowest) expected.push_back(static_cast<int32_t>(i));
      }
      collect_top(row, maxima_, std::numeric_limits<float>::lowest(), count, found_);
      EXPECT_EQ(ids_of(found_), expected);
    }
  }
}

TEST_F(SamplingScanTest, CountsWhatComesBefore) {
  for (const auto& row : rows_) {
    for (size_t id = 0; id < row.size(); ++id) {
      if (std::isnan(row[id])) continue;
      int64_t expected = 0;
      for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] > row[id] || (row[i] == row[id] && i < id)) ++expected;
      }
      ASSERT_EQ(count_before(row, row[id], static_cast<int32_t>(id)), expected);
    }
  }
}

TEST_F(SamplingScanTest, SumsWeights) {
  for (const auto& row : rows_) {
    double expected = 0;
    for (const float logit : row) {
      if (!std::isnan(logit)) expected += std::exp((static_cast<double>(logit) - 13) * 0.5);
    }
    EXPECT_NEAR(sum_exp(row, 13, 0.5f) / expected, 1.0, 1e-6);
  }
}

TEST_F(SamplingScanTest, FastExpIsAccurate) {
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  for (int i = 0; i <= 87'000; i += 3) {
    const float x = static_cast<float>(i) * -0.001f;
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(fast_exp(x)) / exact, 1.0, 3e-7) << x;
  }
  for (const float x : {-kInfinite, kNotANumber, -1e30f, kLowestExponent}) {
    EXPECT_LT(fast_exp(clamp_exponent(x)), 2e-38f);
  }
}

TEST_F(SamplingScanTest, SeesAnyHighNoise) {
  const NoiseKey key = noise_key(1, 2, 3);
  uint32_t highest = 0;
  for (uint32_t id = 100; id < 150; ++id) highest = std::max(highest, noise_bits(key, id));
  EXPECT_TRUE(any_noise_at_least(key, 100, 50, highest));
  EXPECT_FALSE(any_noise_at_least(key, 100, 50, highest + 1));
  EXPECT_FALSE(any_noise_at_least(key, 100, 0, 0));
}

}  // namespace
}  // namespace quire::ops
