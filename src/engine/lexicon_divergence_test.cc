// How far rounding activations to int8 moves the bundled model's predictions from those of the same
// weights, dequantised, with float32 activations: on its answers to questions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "base/sanitized_test_util.h"
#include "quire/llm.h"

namespace quire {
namespace {

constexpr size_t kConversations = kSanitized ? 3 : 12;

// A question with each beginning of its answer.
std::vector<Prompt> beginnings_of_answers() {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/lexicon/prompts.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < kConversations; ++i) {
    auto ids = golden[i]["prompt_ids"].get<std::vector<int32_t>>();
    for (const auto id : golden[i]["output_ids"].get<std::vector<int32_t>>()) {
      prompts.emplace_back(ids);
      ids.push_back(id);
    }
  }
  return prompts;
}

// Natural logarithms of the next token's probabilities.
std::vector<double> log_softmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - largest - std::log(sum));
  return result;
}

// Of the next token after each prompt.
std::vector<std::vector<double>> predictions(const std::string& quantization,
                                             const std::string& dtype,
                                             const std::vector<Prompt>& prompts) {
  EngineConfig config;
  config.model = std::string(QUIRE_SOURCE_DIR) + "/models/lexicon";
  config.threads = 2;
  config.quantization = quantization;
  config.dtype = dtype;
  LLM llm(config);
  std::vector<std::vector<double>> result(prompts.size());
  std::vector<SamplingParams> params;
  for (std::vector<double>& row : result) {
    SamplingParams each{.temperature = 0, .max_tokens = 1};
    each.logits_processors.emplace_back(
        [&row](std::span<const int32_t>, std::span<float> logits) { row = log_softmax(logits); });
    params.push_back(std::move(each));
  }
  llm.generate(prompts, params);
  return result;
}

// The mean Kullback-Leibler divergence from `expected`.
double mean_divergence(const std::vector<std::vector<double>>& expected,
                       const std::vector<std::vector<double>>& actual) {
  double sum = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    for (size_t token = 0; token < expected[i].size(); ++token) {
      sum += std::exp(expected[i][token]) * (expected[i][token] - actual[i][token]);
    }
  }
  return sum / static_cast<double>(expected.size());
}

TEST(LexiconDivergence, RoundedActivationsPredictAlmostTheSame) {
  const std::vector<Prompt> prompts = beginnings_of_answers();
  ASSERT_GT(prompts.size(), 12 * kConversations);
  for (const char* quantization : {"int8", "int4"}) {
    const auto exact = predictions(quantization, "float32", prompts);
    const double divergence =
        mean_divergence(exact, predictions(quantization, "bfloat16", prompts));
    RecordProperty(quantization, std::to_string(divergence));
    EXPECT_GT(divergence, 0) << quantization << ": activations were not rounded";
    EXPECT_LE(divergence, 1e-3) << quantization;
  }
}

}  // namespace
}  // namespace quire
