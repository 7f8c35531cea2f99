#include "quantise/gptq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace quire {
namespace {

constexpr int64_t kInputs = 64;
constexpr int64_t kOutputs = 40;
constexpr int64_t kTokens = 200;

std::vector<float> normal_numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Inputs that depend on each other, as activations do: [kTokens, kInputs].
std::vector<float> dependent_inputs() {
  std::vector<float> inputs = normal_numbers(kTokens * kInputs, 1);
  for (int64_t t = 0; t < kTokens; ++t) {
    float* row = inputs.data() + t * kInputs;
    for (int64_t j = 1; j < kInputs; ++j) row[j] = 0.8f * row[j - 1] + 0.4f * row[j];
  }
  return inputs;
}

std::vector<float> gram_of(const std::vector<float>& inputs) {
  std::vector<float> gram(static_cast<size_t>(kInputs * kInputs));
  for (int64_t i = 0; i < kInputs; ++i) {
    for (int64_t j = 0; j < kInputs; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < kTokens; ++t) {
        sum += static_cast<double>(inputs[static_cast<size_t>(t * kInputs + i)]) *
               inputs[static_cast<size_t>(t * kInputs + j)];
      }
      gram[static_cast<size_t>(i * kInputs + j)] = static_cast<float>(sum);
    }
  }
  return gram;
}

RoundingTarget four_bits(bool symmetric) {
  RoundingTarget target;
  target.scheme.layout = WeightLayout::kPacked;
  target.scheme.bits = 4;
  target.scheme.group_inputs = 32;
  target.scheme.symmetric = symmetric;
  return target;
}

// Squared differences of the outputs for the inputs.
double output_error(const RoundingTarget& target, const std::vector<float>& weights,
                    const RoundedMatrix& rounded, const std::vector<float>& inputs) {
  ThreadPool pool(1);
  const EndableLoops loops(pool);
  std::vector<float> numbers(weights.size());
  dequantise(target, rounded, numbers.data(), loops);
  double error = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t i = 0; i < kOutputs; ++i) {
      double difference = 0;
      for (int64_t j = 0; j < kInputs; ++j) {
        const auto at = static_cast<size_t>(i * kInputs + j);
        difference += static_cast<double>(numbers[at] - weights[at]) *
                      inputs[static_cast<size_t>(t * kInputs + j)];
      }
      error += difference * difference;
    }
  }
  return error;
}

// H^-1 = U^T U, so that U H U^T = 1.
TEST(Gptq, FactorIsThatOfTheInverse) {
  ThreadPool pool(2);
  const EndableLoops loops(pool);
  std::vector<float> gram = gram_of(dependent_inputs());
  const InputFactor factor(gram, kInputs, loops);
  double mean = 0;
  for (int64_t j = 0; j < kInputs; ++j) mean += gram[static_cast<size_t>(j * kInputs + j)];
  for (int64_t j = 0; j < kInputs; ++j) {
    gram[static_cast<size_t>(j * kInputs + j)] += static_cast<float>(0.01 * mean / kInputs);
  }
  for (int64_t a = 0; a < kInputs; ++a) {
    for (int64_t b = 0; b < kInputs; ++b) {
      double product = 0;
      for (int64_t i = a; i < kInputs; ++i) {
        for (int64_t j = b; j < kInputs; ++j) {
          product += static_cast<double>(factor.row(a)[i]) *
                     gram[static_cast<size_t>(i * kInputs + j)] * factor.row(b)[j];
        }
      }
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-3) << a << ", " << b;
    }
  }
}

TEST(Gptq, OutputsChangeLessThanByRoundingToTheNearest) {
  const std::vector<float> inputs = dependent_inputs();
  const std::vector<float> weights = normal_numbers(kOutputs * kInputs, 2);
  ThreadPool pool(2);
  const EndableLoops loops(pool);
  const InputFactor factor(gram_of(inputs), kInputs, loops);
  for (const bool symmetric : {true, false}) {
    const RoundingTarget target = four_bits(symmetric);
    const RoundedMatrix nearest = round_to_nearest(target, weights, kOutputs, kInputs, loops);
    const RoundedMatrix made_up = round_with_gptq(target, factor, weights, kOutputs, loops);
    EXPECT_LT(output_error(target, weights, made_up, inputs),
              0.6 * output_error(target, weights, nearest, inputs));
  }
}

// Inputs that say nothing of each other leave nothing to make up for.
TEST(Gptq, IndependentInputsAreRoundedToTheNearest) {
  std::vector<float> gram(static_cast<size_t>(kInputs * kInputs));
  for (int64_t j = 0; j < kInputs; ++j) gram[static_cast<size_t>(j * kInputs + j)] = 3;
  const std::vector<float> weights = normal_numbers(kOutputs * kInputs, 3);
  ThreadPool pool(2);
  const EndableLoops loops(pool);
  const InputFactor factor(gram, kInputs, loops);
  const RoundingTarget target = four_bits(/*symmetric=*/true);
  const RoundedMatrix nearest = round_to_nearest(target, weights, kOutputs, kInputs, loops);
  const RoundedMatrix made_up = round_with_gptq(target, factor, weights, kOutputs, loops);
  EXPECT_EQ(made_up.scales, nearest.scales);
  EXPECT_EQ(made_up.numbers, nearest.numbers);
}

TEST(Gptq, TheSameOnAnyNumberOfThreads) {
  const std::vector<float> inputs = dependent_inputs();
  const std::vector<float> weights = normal_numbers(kOutputs * kInputs, 4);
  const RoundingTarget target = four_bits(/*symmetric=*/false);
  ThreadPool one(1), three(3);
  const auto rounded = [&](ThreadPool& pool) {
    const EndableLoops loops(pool);
    const InputFactor factor(gram_of(inputs), kInputs, loops);
    return round_with_gptq(target, factor, weights, kOutputs, loops);
  };
  const RoundedMatrix first = rounded(one);
  const RoundedMatrix second = rounded(three);
  EXPECT_EQ(first.numbers, second.numbers);
  EXPECT_EQ(first.scales, second.scales);
  EXPECT_EQ(first.zero_points, second.zero_points);
}

// Some of the inputs are never used, and what their weights are changes nothing.
TEST(Gptq, SquaredOutputsAreThoseOfTheInputs) {
  std::vector<float> inputs = dependent_inputs();
  for (int64_t t = 0; t < kTokens; ++t) {
    for (const int64_t unused : {3, 40}) inputs[static_cast<size_t>(t * kInputs + unused)] = 0;
  }
  const std::vector<float> weights = normal_numbers(kOutputs * kInputs, 5);
  ThreadPool pool(2);
  const EndableLoops loops(pool);
  const InputFactor factor(gram_of(inputs), kInputs, loops);
  for (const int64_t step : {1, 7, 100}) {
    double expected = 0;
    for (int64_t i = 0; i < kOutputs; i += step) {
      for (int64_t t = 0; t < kTokens; ++t) {
        double output = 0;
        for (int64_t j = 0; j < kInputs; ++j) {
          output += static_cast<double>(weights[static_cast<size_t>(i * kInputs + j)]) *
                    inputs[static_cast<size_t>(t * kInputs + j)];
        }
        expected += output * output;
      }
    }
    EXPECT_NEAR(squared_outputs(factor, weights, step, loops), expected, 1e-3 * expected) << step;
  }
}

}  // namespace
}  // namespace quire
