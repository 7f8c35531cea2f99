// A model cut into stages on GPUs gives the tokens of one stage, in any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/constrained_requests.h"
#include "engine/gpu_outputs_test_util.h"
#include "engine/gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/quantised_test_util.h"
#include "engine/random_requests.h"
#include "engine/speculative_gpu_test_util.h"
#include "engine/stages_test_util.h"
#include "quire/llm.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

EngineConfig on_gpus(EngineConfig config, int stages, int ranks) {
  config.device = "cuda";
  config.dtype = "float32";
  config.kv_cache_memory_bytes = int64_t{1} << 26;
  config.pipeline_parallel_size = stages;
  config.tensor_parallel_size = ranks;
  config.threads = stages * ranks;
  return config;
}

struct Layout {
  int stages;
  int ranks;
};

std::string name_of(const Layout& layout) {
  return std::to_string(layout.stages) + "x" + std::to_string(layout.ranks);
}

class StagesOnGpus : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam().stages * GetParam().ranks));
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, StagesOnGpus,
                         testing::Values(Layout{2, 1}, Layout{4, 1}, Layout{2, 2}),
                         [](const auto& layout) { return name_of(layout.param); });

// Steps that are captured and not, too few blocks, sequences that come and go at any time, tokens
// that the host samples, penalties that look at all tokens so far.
TEST_P(StagesOnGpus, GiveTheTokensOfOneStage) {
  const auto [stages, ranks] = GetParam();
  const DeepModel model(5);
  std::mt19937 random(static_cast<uint32_t>(90 + stages));
  const EngineConfig config = on_gpus(model.config(), 1, ranks);
  std::vector<RandomRequest> requests = requests_with_penalties(random, config);
  // Where nobody asks for log-probabilities, each rank samples a share of the rows.
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].params.logprobs.reset();
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));

  RunTotals totals;
  constexpr int kTrials = kSanitized ? 3 : 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = on_gpus(model.config(), stages, ranks);
    trial_config.enforce_eager = trial % 3 == 1;
    trial_config.enable_prefix_caching = trial % 3 != 0;
    trial_config.async_scheduling = trial % 2 == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(2, 40);
    trial_config.kv_cache_memory_bytes.reset();
    trial_config.num_gpu_blocks_override = trial == kTrials - 1 ? 500 : 10 + draw(0, 6);
    if (trial == 2) trial_config.pipeline_layers = {2, 3};
    if (trial == 2 && stages == 4) trial_config.pipeline_layers = {1, 2, 1, 1};
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    arrival_steps.front() = 0;
    arrival_steps.back() = 30;
    const auto outputs = run(trial_config, requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_outputs(outputs[i], expected[i],
                          "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_GT(totals.prefix_cache_hits, 0) << "the requests were meant to share prefixes";
}

// The products of a quantised matrix do not know of stages, but its parts are loaded stage by
// stage.
TEST(StagesCuda, OfQuantisedModelsGiveWhatOneStageGives) {
  QUIRE_SKIP_WITHOUT_GPUS(2);
  for (const char* name :
       {"awq", "gptq-act-order", "ct-int8", "ct-pack-mixed", "ct-float8", "fp8-block-128"}) {
    const auto folder =
        std::filesystem::path(QUIRE_SOURCE_DIR) / "tests" / "golden" / "quantised" / name;
    EngineConfig config = engine_test::on_gpus(folder, 1);
    const auto prompt = golden_prompt(folder);
    const std::vector<float> expected = prompt_logprobs(config, prompt);
    config.pipeline_parallel_size = 2;
    expect_close(prompt_logprobs(config, prompt), expected, 1e-2f, name);
  }
}

TEST_P(StagesOnGpus, CallbacksSeeWhatTheySeeInOneStage) {
  const DeepModel model(5);
  const auto generate = [&model](int stages, int ranks) {
    return answers_with_callbacks(on_gpus(model.config(), stages, ranks));
  };
  const auto [stages, ranks] = GetParam();
  EXPECT_EQ(generate(stages, ranks), generate(1, ranks));
}

TEST_P(StagesOnGpus, AnswersAreOfTheirConstraints) {
  const auto [stages, ranks] = GetParam();
  for (const bool async : {true, false}) {
    std::mt19937 random(20);
    const auto requests = random_constrained_requests(random, 4);
    EngineConfig config = lexicon_config();
    config.device = "cuda";
    config.pipeline_parallel_size = stages;
    config.tensor_parallel_size = ranks;
    config.threads = stages * ranks;
    config.async_scheduling = async;
    LLMEngine engine(config);
    const auto outputs = answers_of(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_matches(requests[i], outputs[i]);
      EXPECT_FALSE(outputs[i].outputs[0].token_ids.empty());
    }
  }
}

// Drafts that stay and that do not, beside sequences without any.
TEST_P(StagesOnGpus, WithDraftsGiveTheTokensOfOneStageWithout) {
  const auto [stages, ranks] = GetParam();
  const DeepModel model(5);
  const DeepHead eagle3({1, 2, 4});
  const DeepHead eagle1({});
  const std::vector<SpeculativeConfig> speculations = {
      drafts_by("ngram", 1),       drafts_by("ngram", 4), drafts_by("suffix", 2),
      drafts_by("suffix", 8),      eagle3.drafts(4),      eagle1.drafts(3),
      draft_model("qwen3-tied", 3)};
  RunTotals totals;
  int trial = 0;
  for (const bool with_logprobs : {false, true}) {
    std::mt19937 random(with_logprobs ? 31 : 32);
    const std::vector<RandomRequest> requests = requests_for_gpus(random, with_logprobs);
    const auto expected =
        run(on_gpus(model.config(), 1, ranks), requests, std::vector<int>(requests.size(), 0));
    for (const SpeculativeConfig& speculation : speculations) {
      EngineConfig config = on_gpus(model.config(), stages, ranks);
      config.speculative_config = speculation;
      expect_no_change(config, requests, expected, trial++, random, totals);
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_GT(totals.num_accepted_drafts, 0) << "the answers were meant to repeat themselves";
}

// Steps are as large as the plan says: a whole part of a long prompt, and drafts of each sequence.
TEST_P(StagesOnGpus, HaveRoomForDraftsBesideALongPrompt) {
  const auto [stages, ranks] = GetParam();
  const DeepModel model(5, 1024);
  std::vector<RandomRequest> requests(9);
  std::vector<int> arrivals;
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.assign(30, static_cast<int32_t>(i + 1));
    requests[i].params = {.temperature = 0, .max_tokens = 60, .ignore_eos = true};
    requests[i].params.logit_bias = {{static_cast<int32_t>(i + 1), 50.0f}};
    arrivals.push_back(0);
  }
  requests.back().prompt.assign(600, 7);
  requests.back().params.max_tokens = 1;
  arrivals.back() = 8;
  EngineConfig base = model.config();
  base.max_model_len = 1024;
  base.max_num_batched_tokens = 2048;
  base.max_num_seqs = static_cast<int64_t>(requests.size());
  EngineConfig config = on_gpus(base, 1, ranks);
  const auto expected = run(config, requests, arrivals);
  config = on_gpus(base, stages, ranks);
  config.speculative_config = drafts_by("ngram", 8);
  RunTotals totals;
  const auto outputs = run(config, requests, arrivals, &totals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(totals.num_accepted_drafts, 200);
}

TEST_P(StagesOnGpus, WithDraftsGiveTheConstrainedAnswersWithout) {
  const auto [stages, ranks] = GetParam();
  std::mt19937 random(21);
  const auto requests = random_constrained_requests(random, 6);
  EngineConfig config = on_gpus(lexicon_config(), stages, ranks);
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(config);
    expected = answers_of(engine, requests);
  }
  config.speculative_config = drafts_by("ngram", 4);
  LLMEngine engine(config);
  const auto outputs = answers_of(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(engine.stats().speculative.num_accepted_tokens, 0);
}

TEST_P(StagesOnGpus, HaveAdapters) {
  const TemporaryFolder root;
  write_adapter(root.path() / "a", "qwen3-tied",
                {.seed = 7, .rank = 8, .modules = {"q_proj", "o_proj", "up_proj", "down_proj"}});
  const auto generate = [&root](int stages, int ranks, const std::string& adapter) {
    EngineConfig config = on_gpus(base_config("qwen3-tied"), stages, ranks);
    config.lora.enabled = true;
    config.lora.max_lora_rank = 8;
    config.lora.modules.push_back({"a", (root.path() / "a").string()});
    std::vector<RandomRequest> requests(8);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt.assign(5 + 7 * i, static_cast<int32_t>(i + 1));
      requests[i].params = {.max_tokens = 12, .ignore_eos = true, .seed = i};
      if (i % 3 != 0) requests[i].lora = adapter;
    }
    std::vector<std::vector<int32_t>> answers;
    for (const RequestOutput& output : run(config, requests, {0, 0, 1, 2, 3, 4, 4, 9})) {
      answers.push_back(output.outputs[0].token_ids);
    }
    return answers;
  };
  const auto [stages, ranks] = GetParam();
  if (stages > 2) GTEST_SKIP() << "the model has two layers";
  const auto expected = generate(1, ranks, "a");
  EXPECT_NE(expected, generate(1, ranks, "")) << "the adapter was meant to matter";
  EXPECT_EQ(generate(stages, ranks, "a"), expected);
}

TEST_P(StagesOnGpus, CountTheirStepsAndTime) {
  const auto [stages, ranks] = GetParam();
  const DeepModel model(5);
  LLMEngine engine(on_gpus(model.config(), stages, ranks));
  engine.add_request("a", std::vector<int32_t>{1, 2, 3}, {.max_tokens = 8, .ignore_eos = true});
  while (!engine.is_finished()) engine.step();
  const EngineStats stats = engine.stats();
  ASSERT_EQ(stats.stages.size(), static_cast<size_t>(stages));
  for (const StageStats& stage : stats.stages) {
    EXPECT_GE(stage.num_steps, 7) << "the last step may not be counted yet";
    EXPECT_GT(stage.busy_s, 0);
  }
}

void expect_error(const EngineConfig& config, const char* part) {
  try {
    LLM llm(config);
    ADD_FAILURE() << "no error with " << part;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(StagesCuda, WhatTheyDoNotTakeIsAnError) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  EngineConfig config = on_gpus(base_config("qwen3-tied"), 2, 32);
  expect_error(config,
               "--tensor-parallel-size times --pipeline-parallel-size is 64, but CUDA finds");
  QUIRE_SKIP_WITHOUT_GPUS(2);
  config = on_gpus(base_config("qwen3-tied"), 2, 1);
  config.speculative_config = draft_model("qwen3-tied", 3);
  config.speculative_config->draft_tensor_parallel_size = 2;
  expect_error(config, "draft_tensor_parallel_size is 2; expected 1");
  QUIRE_SKIP_WITHOUT_GPUS(3);
  config.speculative_config.reset();
  config.pipeline_parallel_size = 3;
  expect_error(config, "expected at most as many stages as layers");
}

}  // namespace
}  // namespace quire
