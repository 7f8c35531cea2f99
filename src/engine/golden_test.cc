// Every golden checkpoint through the whole engine: greedy tokens equal to those of transformers.
#include <gtest/gtest.h>

#include <functional>

#include "engine/golden_file.h"
#include "engine/test_models.h"
#include "quire/llm.h"

namespace quire {
namespace {

struct Golden {
  std::vector<Prompt> prompts;
  std::vector<SamplingParams> params;
  std::vector<std::vector<int32_t>> expected;
};

Golden read_golden(const nlohmann::json& golden) {
  Golden result;
  for (const auto& prompt : golden["prompts"]) {
    const auto expected = prompt["output_token_ids"].get<std::vector<int32_t>>();
    if (expected.empty()) continue;
    SamplingParams params;
    params.temperature = 0;
    params.ignore_eos = true;
    params.max_tokens = static_cast<int64_t>(expected.size());
    result.prompts.emplace_back(prompt["prompt_token_ids"].get<std::vector<int32_t>>());
    result.params.push_back(params);
    result.expected.push_back(expected);
  }
  return result;
}

int config_number(const std::string& name, const char* field) {
  std::ifstream file(engine_test::golden_models() / name / "config.json");
  return nlohmann::json::parse(file)[field].get<int>();
}

class EngineGolden : public testing::TestWithParam<std::string> {
 protected:
  void expect_golden_tokens(const std::function<void(EngineConfig&)>& change) {
    const nlohmann::json json = engine_test::load_golden(GetParam());
    const Golden golden = read_golden(json);
    EngineConfig config;
    config.model = (engine_test::golden_models() / GetParam()).string();
    config.max_model_len = json["max_model_len"].get<int64_t>();
    config.dtype = "float32";
    config.skip_tokenizer_init = true;
    config.threads = 2;
    config.max_num_seqs = 16;
    config.max_num_batched_tokens = 64;
    change(config);
    LLM llm(config);
    const auto outputs = llm.generate(golden.prompts, golden.params);
    ASSERT_EQ(outputs.size(), golden.expected.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i].outputs[0].token_ids, golden.expected[i]) << "prompt " << i;
      EXPECT_EQ(outputs[i].outputs[0].finish_reason, FinishReason::kLength);
    }
  }
};

TEST_P(EngineGolden, GreedyTokens) {
  expect_golden_tokens([](EngineConfig&) {});
}

TEST_P(EngineGolden, GreedyTokensOfTwoRanks) {
  const auto two_ranks = [](EngineConfig& config) { config.tensor_parallel_size = 2; };
  if (config_number(GetParam(), "num_attention_heads") % 2 != 0) {
    EXPECT_THROW(expect_golden_tokens(two_ranks), Error);
    return;
  }
  expect_golden_tokens(two_ranks);
}

TEST_P(EngineGolden, GreedyTokensOfTwoStages) {
  const auto two_stages = [](EngineConfig& config) { config.pipeline_parallel_size = 2; };
  if (config_number(GetParam(), "num_hidden_layers") < 2) {
    EXPECT_THROW(expect_golden_tokens(two_stages), Error);
    return;
  }
  expect_golden_tokens(two_stages);
}

TEST_P(EngineGolden, GreedyTokensInSmallChunksOneStepAtATime) {
  expect_golden_tokens([](EngineConfig& config) {
    config.max_num_batched_tokens = 7;
    config.async_scheduling = false;
    config.enable_prefix_caching = false;
    config.block_size = 32;
  });
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, EngineGolden, testing::ValuesIn(engine_test::golden_cases()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace quire
