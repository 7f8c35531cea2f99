// Steps of few sequences with adapters, which go through the kernel of a whole step where the GPUs
// have one: their log-probabilities are those of the same tokens in a prompt, which separate
// kernels read.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "engine/gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/quantised_test_util.h"
#include "engine/random_requests.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

// Of the last `count` positions.
std::vector<float> last_logprobs(const std::vector<PositionLogprobs>& positions, int64_t count) {
  std::vector<float> logprobs;
  for (auto position = positions.end() - count; position != positions.end(); ++position) {
    logprobs.push_back(position->front().logprob);
  }
  return logprobs;
}

// Makes prompts of requests and their answers, for the log-probabilities of the latter.
void ask_for_prompts(std::vector<RandomRequest>& asked, const std::vector<RequestOutput>& answers) {
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::vector<int32_t>& tokens = answers[i].outputs[0].token_ids;
    asked[i].prompt.insert(asked[i].prompt.end(), tokens.begin(), tokens.end());
    asked[i].params.max_tokens = 1;
    asked[i].params.logprobs.reset();
    asked[i].params.prompt_logprobs = 0;
  }
}

class LoraDecodeSteps : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kNumAdapters = 4;
  static constexpr int64_t kNumTokens = 24;

  // Adapters "a", "b", ... of several ranks and modules.
  EngineConfig config_of(const std::string& model) const {
    EngineConfig config = base_config(model);
    config.device = "cuda";
    config.dtype = GetParam();
    config.kv_cache_memory_bytes = int64_t{1} << 24;
    config.max_num_seqs = 2;
    config.enable_prefix_caching = false;
    config.lora.enabled = true;
    config.lora.max_loras = 2;
    config.lora.max_cpu_loras = kNumAdapters;
    config.lora.max_lora_rank = 64;
    for (int i = 0; i < kNumAdapters; ++i) {
      RandomAdapter adapter = {.seed = static_cast<uint64_t>(i), .rank = 1 + 21 * i};
      adapter.largest = 0.3F / static_cast<float>(1 + adapter.rank / 8);
      if (i == 1) adapter.modules = {"q_proj", "v_proj", "down_proj", "lm_head"};
      const std::string name = name_of_adapter(i);
      write_adapter(root_.path() / model / name, model, adapter);
      config.lora.modules.push_back({name, (root_.path() / model / name).string()});
    }
    return config;
  }

  static std::string name_of_adapter(int i) { return std::string(1, static_cast<char>('a' + i)); }

  // With each adapter twice, and without.
  static std::vector<RandomRequest> requests() {
    std::vector<RandomRequest> requests(2 * (kNumAdapters + 1));
    for (size_t i = 0; i < requests.size(); ++i) {
      for (size_t j = 0; j < 4 + 3 * i; ++j) {
        requests[i].prompt.push_back(static_cast<int32_t>(1 + (j * 7 + i * 11) % 120));
      }
      requests[i].params.temperature = 0;
      requests[i].params.ignore_eos = true;
      requests[i].params.max_tokens = kNumTokens;
      requests[i].params.logprobs = 0;
      const int which = static_cast<int>(i) % (kNumAdapters + 1);
      if (which > 0) requests[i].lora = name_of_adapter(which - 1);
    }
    return requests;
  }

  TemporaryFolder root_;
};
INSTANTIATE_TEST_SUITE_P(Types, LoraDecodeSteps, testing::Values("float32", "bfloat16"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(LoraDecodeSteps, HaveTheLogprobsOfPrompts) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  // Beside adapters gate and up are rounded before the activation, which alone makes 4.2e-2 in rows
  // without an adapter.
  const float tolerance = std::string(GetParam()) == "float32" ? 1e-4F : 6e-2F;
  for (const char* model : {"qwen3-tied", "llama-bias"}) {
    const EngineConfig config = config_of(model);
    std::vector<RandomRequest> asked = requests();
    const std::vector<int> arrivals(asked.size(), 0);
    const auto decoded = run(config, asked, arrivals);
    ask_for_prompts(asked, decoded);
    const auto read = run(config, asked, arrivals);
    for (size_t i = 0; i < asked.size(); ++i) {
      expect_close(last_logprobs(decoded[i].outputs[0].logprobs, kNumTokens),
                   last_logprobs(read[i].prompt_logprobs, kNumTokens), tolerance,
                   std::string(model) + ", request " + std::to_string(i));
    }
  }
}

// Steps of many sequences, whose products add what the adapters do on GPUs that have the kernel:
// their log-probabilities are those of the same tokens on the CPU in float32.
TEST(LoraDecodeStepsOfManySequences, HaveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  constexpr int64_t kNumTokens = 16;
  const std::string models = std::string(QUIRE_SOURCE_DIR) + "/models/";
  EngineConfig config;
  config.model = models + "lexicon";
  config.device = "cuda";
  config.dtype = "bfloat16";
  config.kv_cache_memory_bytes = int64_t{1} << 25;
  config.max_num_seqs = 16;
  config.lora.enabled = true;
  config.lora.modules = {{"pirate", models + "lexicon-pirate"}};
  // In bfloat16 a request without an adapter is off by as much. Simulated GPUs have no float16.
  const bool has_float16 = !has_simulated_gpus(config);
  if (has_float16) config.dtype = "float16";
  const float tolerance = has_float16 ? 0.05F : 0.15F;
  std::vector<RandomRequest> asked(12);
  for (size_t i = 0; i < asked.size(); ++i) {
    for (size_t j = 0; j < 5 + i; ++j) {
      asked[i].prompt.push_back(static_cast<int32_t>(300 + (j * 37 + i * 101) % 1000));
    }
    asked[i].params.temperature = 0;
    asked[i].params.ignore_eos = true;
    asked[i].params.max_tokens = kNumTokens;
    asked[i].params.logprobs = 0;
    if (i % 3 != 0) asked[i].lora = "pirate";
  }
  const std::vector<int> arrivals(asked.size(), 0);
  const auto decoded = run(config, asked, arrivals);
  ask_for_prompts(asked, decoded);
  config.device = "cpu";
  config.dtype = "float32";
  const auto read = run(config, asked, arrivals);
  for (RandomRequest& request : asked) request.lora.clear();
  const auto read_by_base = run(config, asked, arrivals);
  float of_adapter = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::vector<float> expected = last_logprobs(read[i].prompt_logprobs, kNumTokens);
    expect_close(last_logprobs(decoded[i].outputs[0].logprobs, kNumTokens), expected, tolerance,
                 "request " + std::to_string(i));
    const std::vector<float> base = last_logprobs(read_by_base[i].prompt_logprobs, kNumTokens);
    for (size_t j = 0; j < base.size(); ++j) {
      of_adapter = std::max(of_adapter, std::abs(base[j] - expected[j]));
    }
  }
  EXPECT_GT(of_adapter, 1) << "the adapter changes what follows";
}

}  // namespace
}  // namespace quire
