// Checkpoints in float8, and rounding to it, on GPUs, against the same model dequantised. A real
// GPU rounds activations to float8 as well; a simulated one does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/float8_test_models.h"
#include "engine/gpu_test_util.h"
#include "engine/quantised_test_util.h"
#include "quire/chat_input.h"
#include "quire/llm.h"

namespace quire {
namespace {

using engine_test::Continued;
using engine_test::detail_of;
using engine_test::expect_close;
using engine_test::Float8Model;
using engine_test::Float8Scales;
using engine_test::golden_logprobs;
using engine_test::golden_prompt;
using engine_test::has_simulated_gpus;
using engine_test::on_gpus;
using engine_test::prompt_logprobs;
using ::testing::HasSubstr;

// Of rounding activations to float8 in a model of random weights: as much as twice what emulating
// it gives.
constexpr float kRoundedTolerance = 0.2f;

class Float8OnGpus : public testing::TestWithParam<std::tuple<Float8Scales, int>> {
 protected:
  static Float8Scales scales() { return std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Float8OnGpus,
                         testing::Combine(testing::Values(Float8Scales::kTensor,
                                                          Float8Scales::kOutput,
                                                          Float8Scales::kBlock),
                                          testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           const auto scales = std::get<0>(info.param);
                           const std::string name = scales == Float8Scales::kTensor   ? "tensor"
                                                    : scales == Float8Scales::kOutput ? "output"
                                                                                      : "block";
                           return name + "_" + std::to_string(std::get<1>(info.param));
                         });

// One sequence at a time goes through the kernel of a whole step, where the GPUs have one.
TEST_P(Float8OnGpus, GivesWhatItsDequantisedWeightsGive) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(ranks()));
  const Float8Model model(scales());
  for (const int64_t max_num_seqs : {int64_t{8}, int64_t{1}}) {
    EngineConfig config = on_gpus(model.quantised(), ranks());
    config.max_num_seqs = max_num_seqs;
    EXPECT_THAT(detail_of(config, "attention weights"), HasSubstr("fp8 with scales"));
    EXPECT_THAT(detail_of(config, "MLP weights"), HasSubstr("fp8 with scales"));
    const Continued actual(config);
    config.model = model.dequantised().string();
    EXPECT_THAT(detail_of(config, "MLP weights"), Not(HasSubstr("fp8")));
    const Continued expected(config);
    if (has_simulated_gpus(config)) {
      EXPECT_EQ(actual.ids, expected.ids);
      EXPECT_EQ(actual.logprobs, expected.logprobs);
    } else {
      expect_close(actual.logprobs, expected.logprobs, kRoundedTolerance, "float8");
    }
  }
}

TEST_P(Float8OnGpus, TakesRandomWeights) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(ranks()));
  const Float8Model model(scales());
  EngineConfig config = on_gpus(model.quantised(), ranks());
  config.load_format = LoadFormat::kDummy;
  const Continued result(config);
  for (const float logprob : result.logprobs) EXPECT_TRUE(std::isfinite(logprob));
}

class RoundedToFloat8OnGpus : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RoundedToFloat8OnGpus, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

// The CPU rounds weights the same way, and no activations.
TEST_P(RoundedToFloat8OnGpus, GivesWhatTheCpuGives) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const Float8Model model(Float8Scales::kOutput);
  EngineConfig config = on_gpus(model.dequantised(), GetParam());
  config.quantization = "fp8";
  EXPECT_THAT(detail_of(config, "attention weights"), HasSubstr("fp8 with scales"));
  EXPECT_THAT(detail_of(config, "embedding"), HasSubstr("bfloat16"));
  EXPECT_THAT(detail_of(config, "output layer"), HasSubstr("bfloat16"));
  const Continued actual(config);
  const bool are_simulated = has_simulated_gpus(config);
  config.device = "cpu";
  EXPECT_THAT(detail_of(config, "attention weights"), HasSubstr("fp8 with scales"));
  const Continued expected(config);
  expect_close(actual.logprobs, expected.logprobs, are_simulated ? 3e-2f : kRoundedTolerance,
               "rounded to float8");
}

class Float8GoldenOnGpus : public testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Float8GoldenOnGpus,
                         testing::Combine(testing::Values("fp8-tensor", "fp8-block",
                                                          "fp8-block-128", "ct-float8"),
                                          testing::Values(1, 2, 4)),
                         [](const auto& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" +
                                              std::to_string(std::get<1>(info.param));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Most of their matrices are too small for float8; those that are not lie beside dense ones.
TEST_P(Float8GoldenOnGpus, GivesTheLogProbabilitiesOfTransformers) {
  const auto [name, ranks] = GetParam();
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(ranks));
  const auto folder = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised" / name;
  const EngineConfig config = on_gpus(folder, ranks);
  expect_close(prompt_logprobs(config, golden_prompt(folder)), golden_logprobs(folder),
               has_simulated_gpus(config) ? 2e-2f : kRoundedTolerance, name);
}

EngineConfig lexicon_in_float8() {
  EngineConfig config;
  config.model = (std::filesystem::path(QUIRE_SOURCE_DIR) / "models" / "lexicon").string();
  config.device = "cuda";
  config.quantization = "fp8";
  config.kv_cache_memory_bytes = int64_t{1} << 28;
  return config;
}

TEST(LexiconFloat8Cuda, StillAnswers) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  LLM llm(lexicon_in_float8());
  ChatInput input;
  input.messages = messages_to_json({{"user", "define apple"}});
  const auto outputs = llm.chat({input}, {.temperature = 0, .max_tokens = 64});
  EXPECT_THAT(outputs[0].outputs[0].text, HasSubstr("fruit with red or yellow or green skin"));
}

}  // namespace
}  // namespace quire
