// The whole engine on a GPU: the tokens of transformers in float32, under every way to cut the
// work; what it refuses, and logits that are no numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "engine/damaged_model.h"
#include "engine/golden_file.h"
#include "engine/gpu_test_util.h"
#include "engine/test_models.h"
#include "quire/llm.h"

namespace quire {
namespace {

using engine_test::num_gpus;

struct Way {
  const char* name;
  std::function<void(EngineConfig&)> change;
  size_t num_gpus = 1;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"graphs", [](EngineConfig&) {}},
      {"eager", [](EngineConfig& config) { config.enforce_eager = true; }},
      {"chunks", [](EngineConfig& config) { config.max_num_batched_tokens = 5; }},
      {"preemption",
       [](EngineConfig& config) {
         config.num_gpu_blocks_override = (*config.max_model_len + 15) / 16 + 1;
       }},
      {"synchronous", [](EngineConfig& config) { config.async_scheduling = false; }},
      {"no_prefix_cache", [](EngineConfig& config) { config.enable_prefix_caching = false; }},
      {"two_gpus", [](EngineConfig& config) { config.tensor_parallel_size = 2; }, 2},
      {"four_gpus", [](EngineConfig& config) { config.tensor_parallel_size = 4; }, 4},
      {"two_stages", [](EngineConfig& config) { config.pipeline_parallel_size = 2; }, 2},
  };
  return all;
}

class EngineGoldenCuda : public testing::TestWithParam<std::tuple<std::string, size_t>> {
 protected:
  static const Way& way() { return ways()[std::get<1>(GetParam())]; }
  static const std::string& name() { return std::get<0>(GetParam()); }
};

bool splits_as(const std::string& name, const Way& way) {
  std::ifstream file(engine_test::golden_models() / name / "config.json");
  const auto config = nlohmann::json::parse(file);
  EngineConfig changed;
  changed.max_model_len = 1;
  way.change(changed);
  if (config["num_hidden_layers"].get<int>() < changed.pipeline_parallel_size) return false;
  const int size = changed.tensor_parallel_size;
  const int kv_heads =
      config.value("num_key_value_heads", config["num_attention_heads"].get<int>());
  return config["num_attention_heads"].get<int>() % size == 0 &&
         config["intermediate_size"].get<int>() % size == 0 &&
         (kv_heads % size == 0 || size % kv_heads == 0);
}

TEST(EngineCuda, LogitsThatAreNoNumbersFailTheirRequest) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  const engine_test::ModelWithoutLogits model("qwen3-tied");
  for (const int ranks : {1, 2}) {
    if (num_gpus() < static_cast<size_t>(ranks)) continue;
    EngineConfig config;
    config.model = model.folder();
    config.device = "cuda";
    config.dtype = "float32";
    config.skip_tokenizer_init = true;
    config.max_model_len = 128;
    config.kv_cache_memory_bytes = int64_t{1} << 26;
    config.tensor_parallel_size = ranks;
    LLM llm(config);
    // Steps that sample only, that adjust logits, that report log-probabilities, and on the host.
    std::vector<SamplingParams> params(12, SamplingParams{.max_tokens = 4});
    params[1].temperature = 0;
    params[2].repetition_penalty = 1.5;
    params[3].top_k = 5;
    for (const std::optional<int> logprobs : {std::optional<int>(), std::optional<int>(2)}) {
      params[4].logprobs = logprobs;
      params[5].logprobs = logprobs;
      params[5].logit_bias = {{3, 1.0f}};
      const std::vector<Prompt> prompts(params.size(), std::vector<int32_t>{1, 2, 3});
      for (const RequestOutput& output : llm.generate(prompts, params)) {
        EXPECT_THAT(output.error, testing::HasSubstr("logits are not finite"));
        EXPECT_TRUE(output.outputs[0].token_ids.empty());
      }
    }
  }
}

TEST_P(EngineGoldenCuda, GivesTheTokensOfTransformersInFloat32) {
  QUIRE_SKIP_WITHOUT_GPUS(way().num_gpus);
  if (!splits_as(name(), way())) GTEST_SKIP() << "this model cannot be split so";
  const nlohmann::json golden = engine_test::load_golden(name());
  EngineConfig config;
  config.model = (engine_test::golden_models() / name()).string();
  config.max_model_len = golden["max_model_len"].get<int64_t>();
  config.dtype = "float32";
  config.device = "cuda";
  config.skip_tokenizer_init = true;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 64;
  config.kv_cache_memory_bytes = int64_t{1} << 28;
  way().change(config);
  if (config.num_gpu_blocks_override) config.kv_cache_memory_bytes.reset();
  LLM llm(config);
  std::vector<Prompt> prompts;
  std::vector<SamplingParams> params;
  std::vector<std::vector<int32_t>> expected;
  for (const auto& prompt : golden["prompts"]) {
    expected.push_back(prompt["output_token_ids"].get<std::vector<int32_t>>());
    if (expected.back().empty()) {
      expected.pop_back();
      continue;
    }
    prompts.emplace_back(prompt["prompt_token_ids"].get<std::vector<int32_t>>());
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.ignore_eos = true;
    greedy.max_tokens = static_cast<int64_t>(expected.back().size());
    params.push_back(greedy);
  }
  // Twice: the second time the prompts are cached, and steps of each size are replayed.
  for (int round = 0; round < 2; ++round) {
    const auto outputs = llm.generate(prompts, params);
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i]) << "prompt " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EngineGoldenCuda,
                         testing::Combine(testing::ValuesIn(engine_test::golden_cases()),
                                          testing::Range(size_t{0}, ways().size())),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param) + "_" + ways()[std::get<1>(info.param)].name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return !std::isalnum(c); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace quire
