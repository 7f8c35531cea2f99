// The bundled model and small ones on GPUs, one and several: the tokens and log-probabilities of
// the CPU in float32, and in lower precision tokens that seldom differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/sanitized_test_util.h"
#include "engine/golden_file.h"
#include "engine/gpu_test_util.h"
#include "engine/test_models.h"
#include "quire/llm.h"

namespace quire {
namespace {

EngineConfig lexicon(const std::string& device, const std::string& dtype) {
  EngineConfig config;
  config.model = (std::filesystem::path(QUIRE_SOURCE_DIR) / "models" / "lexicon").string();
  config.device = device;
  config.dtype = dtype;
  config.kv_cache_memory_bytes = int64_t{1} << 30;
  return config;
}

std::vector<Prompt> lexicon_prompts(std::vector<std::vector<int32_t>>& expected) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/lexicon/prompts.json");
  std::vector<Prompt> prompts;
  for (const auto& prompt : nlohmann::json::parse(file)) {
    prompts.emplace_back(prompt["prompt_ids"].get<std::vector<int32_t>>());
    expected.push_back(prompt["output_ids"].get<std::vector<int32_t>>());
  }
  return prompts;
}

// Prompts whose greedy output differs anywhere.
int count_differing(const std::vector<RequestOutput>& outputs,
                    const std::vector<std::vector<int32_t>>& expected) {
  int differing = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    differing += outputs[i].outputs[0].token_ids != expected[i] ? 1 : 0;
  }
  return differing;
}

TEST(LexiconCuda, GivesTheTokensOfTheCpuInFloat32) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  std::vector<std::vector<int32_t>> expected;
  const std::vector<Prompt> prompts = lexicon_prompts(expected);
  LLM llm(lexicon("cuda", "float32"));
  const auto outputs = llm.generate(prompts, {.temperature = 0, .max_tokens = 64});
  EXPECT_EQ(count_differing(outputs, expected), 0);
}

// From float32, in what is printed as `name`.
void expect_to_diverge_seldom(const EngineConfig& config, const std::string& name) {
  std::vector<std::vector<int32_t>> expected;
  const std::vector<Prompt> prompts = lexicon_prompts(expected);
  LLM llm(config);
  const auto outputs = llm.generate(prompts, {.temperature = 0, .max_tokens = 64});
  const int differing = count_differing(outputs, expected);
  std::printf("%s: %d of %zu greedy outputs differ from float32's\n", name.c_str(), differing,
              prompts.size());
  EXPECT_LE(differing, static_cast<int>(prompts.size()) / 10) << name;
}

TEST(LexiconCuda, DivergesSeldomInLowerPrecision) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  for (const char* dtype : {"bfloat16", "float16"}) {
    for (const char* kv_cache : {"auto", "fp8"}) {
      EngineConfig config = lexicon("cuda", dtype);
      config.kv_cache_dtype = kv_cache;
      expect_to_diverge_seldom(config, std::string(dtype) + ", KV cache " + kv_cache);
    }
  }
}

// What ranks share beside the model: what the host samples, log-probabilities, callbacks.
class LexiconOnGpus : public testing::TestWithParam<int> {
 protected:
  static EngineConfig on_gpus(const std::string& dtype) {
    EngineConfig config = lexicon("cuda", dtype);
    config.tensor_parallel_size = GetParam();
    return config;
  }

  // In float32, one prompt with each of these parameters.
  static void expect_tokens_of_the_cpu(const std::string& prompt,
                                       const std::vector<SamplingParams>& params) {
    const std::vector<Prompt> prompts(params.size(), prompt);
    LLM cpu(lexicon("cpu", "float32"));
    LLM gpu(on_gpus("float32"));
    const auto expected = cpu.generate(prompts, params);
    const auto outputs = gpu.generate(prompts, params);
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i].outputs[0].token_ids) << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LexiconOnGpus, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(LexiconOnGpus, SamplesAsTheCpuDoes) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::vector<SamplingParams> params(
      7, SamplingParams{.temperature = 1.0, .max_tokens = kSanitized ? 14 : 24});
  for (size_t i = 0; i < params.size(); ++i) params[i].seed = 17 + i;
  params[1].top_k = 20;
  params[2].top_p = 0.9;
  params[3].min_p = 0.05;
  params[4].repetition_penalty = 1.3;
  params[4].logprobs = 3;  // with these the host samples
  params[5].min_tokens = 12;
  params[5].logit_bias = {{42, 5.0f}};
  params[6].presence_penalty = 2;
  params[6].repetition_penalty = 1.1;
  params[6].top_p = 0.95;
  expect_tokens_of_the_cpu("The meaning of the word", params);
}

// Two sequences at a time: steps go through the kernel of a whole step, where the GPUs have one.
TEST_P(LexiconOnGpus, DivergesSeldomInLowerPrecisionTwoAtATime) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const char* dtype : {"bfloat16", "float16"}) {
    EngineConfig config = on_gpus(dtype);
    config.max_num_seqs = 2;
    expect_to_diverge_seldom(config, dtype);
  }
}

TEST_P(LexiconOnGpus, TakesMoreBiasesThanAStepHasRoomFor) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::vector<SamplingParams> params(4, SamplingParams{.temperature = 0, .max_tokens = 6});
  for (size_t i = 0; i < params.size(); ++i) {
    for (int32_t id = 0; id < 3000; ++id) {
      params[i].logit_bias[id] = (id + static_cast<int32_t>(i)) % 5 == 0 ? 9.0f : -2.0f;
    }
  }
  expect_tokens_of_the_cpu("A word for a large house is", params);
}

// Log-probabilities of the prompt's tokens.
std::vector<float> prompt_logprobs(EngineConfig config, const Prompt& prompt) {
  LLM llm(config);
  SamplingParams params{.temperature = 0, .max_tokens = 1};
  params.prompt_logprobs = 0;
  std::vector<float> values;
  const auto output = llm.generate({prompt}, params)[0];
  for (const auto& position : output.prompt_logprobs) {
    if (!position.empty()) values.push_back(position.front().logprob);
  }
  return values;
}

TEST_P(LexiconOnGpus, ScoresAPromptAsTheCpuDoes) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::vector<int32_t> ids;
  constexpr int32_t kTokens = kSanitized ? 40 : 200;
  for (int32_t i = 0; i < kTokens; ++i) ids.push_back(1 + i * 37 % 4000);
  const std::vector<float> expected = prompt_logprobs(lexicon("cpu", "float32"), ids);
  ASSERT_GE(expected.size(), static_cast<size_t>(kTokens - 1));
  for (const auto& [dtype, tolerance] :
       {std::pair("float32", 1e-3f), std::pair("bfloat16", 2e-2f)}) {
    const std::vector<float> values = prompt_logprobs(on_gpus(dtype), ids);
    ASSERT_EQ(values.size(), expected.size());
    float most = 0;
    float worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(expected[i]));
      worst = std::max(worst, std::abs(values[i] - expected[i]));
    }
    EXPECT_LE(worst, tolerance * most) << dtype;
    std::printf("%s: max|a-b| is %.2g of max|b|\n", dtype, worst / most);
  }
}

void expect_same(const PositionLogprobs& actual, const PositionLogprobs& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].token_id, expected[i].token_id);
    EXPECT_EQ(actual[i].rank, expected[i].rank);
    EXPECT_NEAR(actual[i].logprob, expected[i].logprob,
                1e-4f * std::max(1.0f, std::abs(expected[i].logprob)));
  }
}

void expect_same(const std::vector<PositionLogprobs>& actual,
                 const std::vector<PositionLogprobs>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) expect_same(actual[i], expected[i]);
}

TEST_P(LexiconOnGpus, ReportsLogprobsAsTheCpuDoes) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::vector<SamplingParams> params(5, SamplingParams{.temperature = 0, .max_tokens = 12});
  params[0].logprobs = 0;
  params[1].logprobs = 5;
  params[1].prompt_logprobs = 3;
  params[2].logprobs = 20;
  params[3].logprobs = 2;
  params[3].repetition_penalty = 1.2;  // sampled on the host, beside the others
  params[4].frequency_penalty = 1.5;   // by the GPU
  params[4].logit_bias = {{42, 5.0f}};
  params[4].prompt_logprobs = 1;
  const std::vector<Prompt> prompts(params.size(), std::string("A word for a large house is"));
  LLM cpu(lexicon("cpu", "float32"));
  LLM gpu(on_gpus("float32"));
  const auto expected = cpu.generate(prompts, params);
  const auto outputs = gpu.generate(prompts, params);
  for (size_t i = 0; i < params.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i].outputs[0].token_ids);
    expect_same(outputs[i].outputs[0].logprobs, expected[i].outputs[0].logprobs);
    expect_same(outputs[i].prompt_logprobs, expected[i].prompt_logprobs);
  }
}

TEST_P(LexiconOnGpus, AsksCallbacksOnOneRank) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  constexpr int32_t kToken = 300;
  int num_calls = 0;
  SamplingParams params{.temperature = 0, .max_tokens = 8, .ignore_eos = true};
  params.logits_processors = {[&num_calls](std::span<const int32_t>, std::span<float> logits) {
    logits[static_cast<size_t>(kToken + num_calls++)] = 1e6f;
  }};
  LLM llm(on_gpus("float32"));
  const auto outputs = llm.generate({Prompt(std::string("A word"))}, params);
  EXPECT_THAT(outputs[0].outputs[0].token_ids,
              testing::ElementsAre(300, 301, 302, 303, 304, 305, 306, 307));
  EXPECT_EQ(num_calls, 8);
}

// Says on stderr what a callback threw, and exits with 0.
void exit_with_what_a_callback_throws(const EngineConfig& config) {
  SamplingParams params{.temperature = 0, .max_tokens = 8};
  params.logits_processors = {
      [](std::span<const int32_t>, std::span<float>) { throw Error("the callback's own"); }};
  LLM llm(config);
  try {
    llm.generate({Prompt(std::string("A word"))}, params);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::_Exit(0);
  }
  std::_Exit(1);
}

// In processes of their own: where ranks wait for one that has failed, their GPUs are lost to the
// process.
using LexiconOnGpusDeathTest = LexiconOnGpus;
INSTANTIATE_TEST_SUITE_P(Ranks, LexiconOnGpusDeathTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(LexiconOnGpusDeathTest, EndsWithWhatACallbackThrows) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_what_a_callback_throws(on_gpus("float32")), testing::ExitedWithCode(0),
              "the callback's own");
}

// Greedy outputs that depend on every token of the history, the prompt's too, or on biases. On two
// ranks, which each sample half of the rows, both have some of each kind.
std::vector<SamplingParams> penalties() {
  std::vector<SamplingParams> params(
      6, SamplingParams{.temperature = 0, .max_tokens = 20, .ignore_eos = true});
  params[0].repetition_penalty = 0.1;
  params[1].presence_penalty = 1.5;
  params[2].frequency_penalty = -2;
  params[3].repetition_penalty = 1.3;
  params[3].frequency_penalty = 2;
  params[4].n = 2;
  params[4].seed = 5;
  params[4].temperature = 1;
  params[4].repetition_penalty = 0.3;
  params[0].logit_bias = {{7, 30.0f}, {11, -20.0f}};
  params[5].logit_bias = {{3, 40.0f}, {20, 20.0f}, {41, 25.0f}};
  params[5].frequency_penalty = 0.5;
  return params;
}

EngineConfig tiny_model() {
  EngineConfig config;
  config.model = (engine_test::golden_models() / "qwen3-tied").string();
  config.dtype = "float32";
  config.max_model_len = 128;
  config.skip_tokenizer_init = true;
  config.kv_cache_memory_bytes = int64_t{1} << 26;
  return config;
}

class PenaltiesOnGpus : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PenaltiesOnGpus, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(PenaltiesOnGpus, GiveTheTokensOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  // Prompts of several blocks, which share their beginning, shorter and shorter. The model has 128
  // tokens.
  std::vector<SamplingParams> params = penalties();
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < params.size(); ++i) {
    std::vector<int32_t> ids;
    for (size_t t = 0; t < 60 - 5 * i; ++t) ids.push_back(static_cast<int32_t>(t * t * 29 % 60));
    ids.push_back(static_cast<int32_t>(60 + i));
    prompts.emplace_back(ids);
  }
  // The last has nothing of all this.
  params.push_back(SamplingParams{.temperature = 0, .max_tokens = 20, .ignore_eos = true});
  prompts.push_back(prompts.front());

  EngineConfig config = tiny_model();
  config.device = "cpu";
  LLM cpu(config);
  const auto expected = cpu.generate(prompts, params);
  EXPECT_NE(expected.front().outputs[0].token_ids, expected.back().outputs[0].token_ids);
  config.device = "cuda";
  config.tensor_parallel_size = GetParam();
  EngineConfig few_blocks = config;
  few_blocks.kv_cache_memory_bytes.reset();
  few_blocks.num_gpu_blocks_override = 10;
  EngineConfig small_eager_steps = config;
  small_eager_steps.max_num_batched_tokens = 24;
  small_eager_steps.enforce_eager = true;
  small_eager_steps.async_scheduling = false;
  for (const EngineConfig& way : {config, few_blocks, small_eager_steps}) {
    LLM gpu(way);
    // The second time the prompts are cached, and steps are replayed.
    for (int round = 0; round < 2; ++round) {
      const auto outputs = gpu.generate(prompts, params);
      for (size_t i = 0; i < params.size(); ++i) {
        for (size_t k = 0; k < expected[i].outputs.size(); ++k) {
          EXPECT_EQ(outputs[i].outputs[k].token_ids, expected[i].outputs[k].token_ids)
              << "prompt " << i << ", output " << k << ", round " << round;
        }
      }
    }
    if (way.num_gpu_blocks_override) {
      EXPECT_GT(gpu.engine().stats().num_preemptions, 0) << "too many blocks to preempt";
    }
  }
}

// A request of each kind of sampling, the i-th; it ends after some tokens of its own number.
SamplingParams sampled_in_some_way(int i) {
  SamplingParams params;
  params.temperature = i % 6 == 0 ? 0.0f : 0.9f;
  params.seed = static_cast<uint64_t>(100 + i);
  params.max_tokens = 6 + i % 7;
  params.ignore_eos = true;
  if (i % 6 == 1) params.top_k = 4;
  if (i % 6 == 2) params.top_p = 0.6;
  if (i % 6 == 3) params.min_p = 0.2;
  if (i % 6 == 4) params.presence_penalty = 1.5;
  return params;
}

class ManyRowsOnGpus : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ManyRowsOnGpus, testing::Values(2, 4),
                         testing::PrintToStringParamName());

// Rows are split over the ranks, unevenly, until too few are left; the request that wants
// log-probabilities ends first, and no step is split before.
TEST_P(ManyRowsOnGpus, AreSampledAsOnTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  constexpr int kRows = 19;
  std::vector<Prompt> prompts;
  std::vector<SamplingParams> params;
  for (int i = 0; i < kRows; ++i) {
    std::vector<int32_t> ids;
    for (int t = 0; t < 4 + 3 * ((i * 5) % kRows); ++t) ids.push_back((t * t * 29 + i) % 60);
    prompts.emplace_back(ids);
    params.push_back(sampled_in_some_way(i));
  }
  params[17].logprobs = 2;
  params[17].max_tokens = 3;

  EngineConfig config = tiny_model();
  config.device = "cpu";
  LLM cpu(config);
  const auto expected = cpu.generate(prompts, params);
  config.device = "cuda";
  config.tensor_parallel_size = GetParam();
  for (const bool is_eager : {false, true}) {
    config.enforce_eager = is_eager;
    LLM gpu(config);
    for (int round = 0; round < 2; ++round) {
      const auto outputs = gpu.generate(prompts, params);
      for (size_t i = 0; i < params.size(); ++i) {
        EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i].outputs[0].token_ids)
            << "prompt " << i << ", round " << round << (is_eager ? ", eager" : "");
        expect_same(outputs[i].outputs[0].logprobs, expected[i].outputs[0].logprobs);
      }
    }
  }
}

}  // namespace
}  // namespace quire
