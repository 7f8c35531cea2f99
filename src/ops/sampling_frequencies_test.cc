// That tokens are sampled as often as their probabilities say.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/sampling_noise.h"
#include "ops/sampling_test_util.h"

namespace quire::ops {
namespace {

using sampling_test::Logits;
using sampling_test::sample_one;

// Chi-square of observed counts against probabilities.
double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const int total = std::accumulate(counts.begin(), counts.end(), 0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = total * probabilities[i];
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0);
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

std::vector<double> softmax(const Logits& logits, double temperature) {
  std::vector<double> result;
  for (const float logit : logits) result.push_back(std::exp(logit / temperature));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& p : result) p /= sum;
  return result;
}

// With 7 degrees of freedom, 24.3 is exceeded in one of a thousand experiments; seeds are fixed.
constexpr double kChiSquare7 = 24.3;

TEST(SamplingTest, FrequenciesAreTheProbabilities) {
  const Logits logits = {0, 1, 2, -1, 0.5f, -3, 1.5f, -0.5f};
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    std::vector<int> by_position(8), by_seed(8), by_index(8);
    SamplingRow row;
    row.temperature = temperature;
    for (uint32_t i = 0; i < 20000; ++i) {
      row.seed = 5;
      row.index = 0;
      row.position = i;
      ++by_position[static_cast<size_t>(sample_one(logits, row))];
      row.seed = i;
      row.position = 3;
      ++by_seed[static_cast<size_t>(sample_one(logits, row))];
      row.seed = 5;
      row.index = i;
      ++by_index[static_cast<size_t>(sample_one(logits, row))];
    }
    for (const auto& counts : {by_position, by_seed, by_index}) {
      EXPECT_LT(chi_square(counts, softmax(logits, static_cast<double>(temperature))), kChiSquare7);
    }
  }
}

TEST(SamplingTest, FrequenciesAreTheProbabilitiesOfWhatIsLeft) {
  const Logits logits = {0, 1, 2, -1, 0.5f, -3, 1.5f, -0.5f};
  SamplingRow row;
  row.top_k = 4;     // ids 2, 6, 1, 4
  row.top_p = 0.8f;  // of which 2, 6, 1 have 0.87
  std::vector<int> counts(8);
  for (row.position = 0; row.position < 20000; ++row.position) {
    ++counts[static_cast<size_t>(sample_one(logits, row))];
  }
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(1.5);
  EXPECT_LT(chi_square(counts, {0, std::exp(1.0) / sum, std::exp(2.0) / sum, 0, 0, 0,
                                std::exp(1.5) / sum, 0}),
            kChiSquare7);
}

// A token is as often the choice wherever it stands in a large vocabulary.
TEST(SamplingTest, FrequenciesAreEvenOverALargeVocabulary) {
  const size_t width = 8 * 640;
  const Logits logits(width, 0.25f);
  std::vector<int> counts(8);
  SamplingRow row;
  for (row.position = 0; row.position < 4000; ++row.position) {
    ++counts[static_cast<size_t>(sample_one(logits, row)) / 640];
  }
  EXPECT_LT(chi_square(counts, std::vector<double>(8, 0.125)), kChiSquare7);
}

TEST(SamplingNoiseTest, BitsAreEvenAndTokensIndependent) {
  std::vector<int> high(8), pairs(8);
  for (uint64_t position = 0; position < 200; ++position) {
    const NoiseKey key = noise_key(1, 0, position);
    for (uint32_t id = 0; id < 500; ++id) {
      const uint32_t a = noise_bits(key, id), b = noise_bits(key, id + 1);
      ++high[a >> 29];
      ++pairs[((a >> 31) << 2) | ((b >> 31) << 1) |
              (noise_bits(noise_key(1, 0, position + 1), id) >> 31)];
    }
  }
  EXPECT_LT(chi_square(high, std::vector<double>(8, 0.125)), kChiSquare7);
  EXPECT_LT(chi_square(pairs, std::vector<double>(8, 0.125)), kChiSquare7);
  EXPECT_LT(gumbel_noise(0xffffffffu), kMaxGumbelNoise);
  EXPECT_TRUE(std::isfinite(gumbel_noise(0)));
}

}  // namespace
}  // namespace quire::ops
