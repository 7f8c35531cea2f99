// Checkpoints of integers, and rounding to them, on GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/gpu_test_util.h"
#include "engine/quantised_test_util.h"
#include "quire/chat_input.h"
#include "quire/llm.h"

namespace quire {
namespace {

using engine_test::golden_logprobs;
using engine_test::golden_prompt;
using ::testing::HasSubstr;
using ::testing::Not;

struct IntegerGolden {
  const char* folder;
  const char* attention;  // in the plan, of one rank
};

std::filesystem::path folder_of(const std::string& golden) {
  return std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised" / golden;
}

class IntegersOnGpus : public testing::TestWithParam<std::tuple<IntegerGolden, int>> {};
INSTANTIATE_TEST_SUITE_P(
    Ranks, IntegersOnGpus,
    testing::Combine(testing::Values(IntegerGolden{"awq", "int4 in groups of 64 with offsets"},
                                     IntegerGolden{"ct-int8", "int8 with a scale"},
                                     IntegerGolden{"ct-pack-4bit", "int4 in groups of 32"},
                                     IntegerGolden{"ct-pack-act-order", "int4 in groups of 32"},
                                     IntegerGolden{"ct-pack-mixed", "int"},
                                     IntegerGolden{"gptq-4bit", "int4 in groups of 32"},
                                     IntegerGolden{"gptq-act-order", "int4 in groups of 32"},
                                     IntegerGolden{"gptq-fused", "int"},
                                     IntegerGolden{"gptq-v2-8bit", "int8 with a scale"}),
                     testing::Values(1, 2, 4)),
    [](const auto& info) {
      std::string name = std::string(std::get<0>(info.param).folder) + "_" +
                         std::to_string(std::get<1>(info.param));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

TEST_P(IntegersOnGpus, GiveTheLogProbabilitiesOfTransformers) {
  const auto& [golden, ranks] = GetParam();
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(ranks));
  const std::filesystem::path folder = folder_of(golden.folder);
  const EngineConfig config = engine_test::on_gpus(folder, ranks);
  if (ranks == 1) {
    EXPECT_THAT(engine_test::detail_of(config, "attention weights"), HasSubstr(golden.attention));
  }
  engine_test::expect_close(engine_test::prompt_logprobs(config, golden_prompt(folder)),
                            golden_logprobs(folder), 2e-2f, golden.folder);
}

TEST(IntegersCuda, StayPackedInHalfPrecision) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  EngineConfig config = engine_test::on_gpus(folder_of("gptq-4bit"), 1);
  EXPECT_THAT(engine_test::detail_of(config, "MLP weights"), HasSubstr("int4"));
  EXPECT_THAT(engine_test::detail_of(config, "output layer"), Not(HasSubstr("int4")));
  config.dtype = "float32";
  EXPECT_THAT(engine_test::detail_of(config, "MLP weights"), HasSubstr("float32 from GPTQ"));
}

// Where no product takes integers, whatever the orders of their inputs.
TEST(IntegersCuda, AreDenseInFloat32) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  for (const char* name : {"gptq-act-order", "ct-pack-act-order"}) {
    EngineConfig config = engine_test::on_gpus(folder_of(name), 1);
    config.dtype = "float32";
    engine_test::expect_close(engine_test::prompt_logprobs(config, golden_prompt(folder_of(name))),
                              golden_logprobs(folder_of(name)), 1e-3f, name);
  }
}

TEST(IntegersCuda, TakeRandomWeights) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  for (const char* folder : {"gptq-4bit", "gptq-act-order", "awq"}) {
    EngineConfig config = engine_test::on_gpus(folder_of(folder), 1);
    config.load_format = LoadFormat::kDummy;
    const auto logprobs = engine_test::prompt_logprobs(config, golden_prompt(folder_of(folder)));
    EXPECT_FALSE(logprobs.empty());
    for (const float logprob : logprobs) EXPECT_TRUE(std::isfinite(logprob)) << folder;
  }
}

class LexiconIntegersCuda : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Rounded, LexiconIntegersCuda, testing::Values("int4", "int8"),
                         [](const auto& info) { return info.param; });

TEST_P(LexiconIntegersCuda, StillAnswers) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  EngineConfig config;
  config.model = (std::filesystem::path(QUIRE_SOURCE_DIR) / "models" / "lexicon").string();
  config.device = "cuda";
  config.quantization = GetParam();
  config.kv_cache_memory_bytes = int64_t{1} << 28;
  EXPECT_THAT(engine_test::detail_of(config, "MLP weights"),
              HasSubstr(GetParam() + " in groups of 128"));
  EXPECT_THAT(engine_test::detail_of(config, "embedding"), HasSubstr("bfloat16"));
  LLM llm(config);
  ChatInput input;
  input.messages = messages_to_json({{"user", "define apple"}});
  const auto outputs = llm.chat({input}, {.temperature = 0, .max_tokens = 64});
  EXPECT_THAT(outputs[0].outputs[0].text, HasSubstr("fruit"));
}

}  // namespace
}  // namespace quire
