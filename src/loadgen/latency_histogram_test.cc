#include "loadgen/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace quire::loadgen {
namespace {

TEST(LatencyHistogram, EmptyIsZero) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.standard_deviation(), 0);
  EXPECT_EQ(histogram.percentile(0.5), 0);
  EXPECT_EQ(histogram.max(), 0);
}

TEST(LatencyHistogram, OneValue) {
  LatencyHistogram histogram;
  histogram.add(0.25);
  EXPECT_EQ(histogram.mean(), 0.25);
  EXPECT_EQ(histogram.max(), 0.25);
  for (const double share : {0.0, 0.5, 1.0}) {
    EXPECT_NEAR(histogram.percentile(share), 0.25, 0.25e-3);
  }
}

TEST(LatencyHistogram, AgreesWithSortedValues) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-9, 4);
  LatencyHistogram histogram;
  std::vector<double> values;
  for (int i = 0; i < 20000; ++i) {
    values.push_back(std::pow(10.0, exponent(random)));
    histogram.add(values.back());
  }
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double value : values) sum += value;
  const auto count = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - sum / count) * (value - sum / count);

  EXPECT_EQ(histogram.count(), 20000);
  EXPECT_EQ(histogram.max(), values.back());
  EXPECT_NEAR(histogram.mean(), sum / count, 1e-9 * sum / count);
  EXPECT_NEAR(histogram.standard_deviation(), std::sqrt(squares / count), 1e-6);
  for (const double share : {0.01, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
    const double exact = values[static_cast<size_t>(std::ceil(share * count)) - 1];
    EXPECT_NEAR(histogram.percentile(share), exact, 1e-3 * exact + 1e-9) << share;
  }
}

TEST(LatencyHistogram, HoldsExtremes) {
  LatencyHistogram histogram;
  histogram.add(-1);
  histogram.add(1e9);
  EXPECT_EQ(histogram.percentile(0), 0);
  EXPECT_EQ(histogram.max(), 1e9);
  EXPECT_GT(histogram.percentile(1), 17000);  // the last bucket
}

}  // namespace
}  // namespace quire::loadgen
