#include "loadgen/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace quire::loadgen {
namespace {

std::vector<double> gaps(double rate, double burstiness, uint64_t seed, int count) {
  Arrivals arrivals(rate, burstiness, seed);
  double last = arrivals.next();
  EXPECT_EQ(last, 0);
  std::vector<double> gaps;
  for (int i = 0; i < count; ++i) {
    const double time = arrivals.next();
    gaps.push_back(time - last);
    last = time;
  }
  return gaps;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The standard deviation as a share of the mean.
double variation(const std::vector<double>& values) {
  const double centre = mean(values);
  double sum = 0;
  for (const double value : values) sum += (value - centre) * (value - centre);
  return std::sqrt(sum / static_cast<double>(values.size())) / centre;
}

TEST(Arrivals, InfiniteRateIsAllAtOnce) {
  Arrivals arrivals(std::numeric_limits<double>::infinity(), 1, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(arrivals.next(), 0);
}

TEST(Arrivals, KeepTheRate) {
  for (const double burstiness : {0.5, 1.0, 4.0}) {
    EXPECT_NEAR(mean(gaps(8, burstiness, 3, 20000)), 1.0 / 8, 0.03 / 8) << burstiness;
  }
}

TEST(Arrivals, BurstinessIsTheShapeOfTheGaps) {
  // The variation of a gamma distribution is the inverse root of its shape; 1 is a Poisson process.
  for (const double burstiness : {0.25, 1.0, 16.0}) {
    EXPECT_NEAR(variation(gaps(8, burstiness, 3, 50000)), 1 / std::sqrt(burstiness),
                0.05 / std::sqrt(burstiness));
  }
}

TEST(Arrivals, TheSameSeedGivesTheSameTimes) {
  EXPECT_EQ(gaps(2, 1, 5, 100), gaps(2, 1, 5, 100));
  EXPECT_NE(gaps(2, 1, 5, 100), gaps(2, 1, 6, 100));
}

TEST(Arrivals, NeverRunBackwards) {
  for (const double gap : gaps(1000, 0.1, 1, 10000)) EXPECT_GE(gap, 0);
}

}  // namespace
}  // namespace quire::loadgen
