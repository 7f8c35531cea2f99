// A model cut into stages computes what one stage computes, bit for bit, in any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/damaged_model.h"
#include "engine/random_requests.h"
#include "quire/llm.h"
#include "quire/plan.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

// Requests with every kind of penalty beside what random_requests() draws; the last has the prompt
// of the first.
std::vector<RandomRequest> requests_with_penalties(std::mt19937& random,
                                                   const EngineConfig& config) {
  std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].params.presence_penalty = 0.7;
    requests[i].params.frequency_penalty = 0.4;
    requests[i].params.min_tokens = 1;
    requests[i].params.logit_bias = {{3, 1.5f}, {7, -2.0f}};
  }
  requests.front().prompt.resize(40, 1);
  requests.back().prompt = requests.front().prompt;
  requests.back().params.prompt_logprobs.reset();  // they would be computed, not found in the cache
  return requests;
}

// Compares with one stage of as many ranks.
void expect_results_of_one_stage(EngineConfig config, int stages, int ranks, uint32_t seed) {
  std::mt19937 random(seed);
  config.tensor_parallel_size = ranks;
  config.threads = ranks;
  const std::vector<RandomRequest> requests = requests_with_penalties(random, config);
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));

  config.pipeline_parallel_size = stages;
  RunTotals totals;
  constexpr int kTrials = 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = config;
    trial_config.threads = stages * ranks;
    trial_config.enable_prefix_caching = trial % 3 != 0;
    trial_config.async_scheduling = trial % 2 == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(2, 40);
    // The last trial keeps every block, so that the last request finds the prompt of the first.
    trial_config.num_gpu_blocks_override = trial == kTrials - 1 ? 500 : 10 + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    arrival_steps.front() = 0;
    arrival_steps.back() = 30;
    const auto outputs = run(trial_config, requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_GT(totals.prefix_cache_hits, 0) << "the requests were meant to share prefixes";
}

TEST(EngineStages, TwoComputeWhatOneComputes) {
  expect_results_of_one_stage(base_config("qwen3-tied"), 2, 1, 1);
}

TEST(EngineStages, TwoOfTwoRanksComputeWhatOneOfTwoComputes) {
  expect_results_of_one_stage(base_config("qwen3-tied"), 2, 2, 2);
}

TEST(EngineStages, ThreeComputeWhatOneComputes) {
  expect_results_of_one_stage(base_config("qwen2-sliding"), 3, 1, 3);
}

TEST(EngineStages, ThreeLayersAreCutIntoTwoStages) {
  expect_results_of_one_stage(base_config("qwen3-bias-sharded"), 2, 2, 4);
}

TEST(EngineStages, ComputeInBFloat16WhatOneComputes) {
  EngineConfig config = base_config("qwen3-bf16");
  config.dtype = "bfloat16";
  expect_results_of_one_stage(config, 2, 1, 5);
}

TEST(EngineStages, LogitsThatAreNoNumbersFailTheRequestInEveryDivision) {
  const ModelWithoutLogits model("qwen3-tied");
  for (const auto& [ranks, stages] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(stages) + " stages");
    EngineConfig config = base_config("qwen3-tied");
    config.model = model.folder();
    config.tensor_parallel_size = ranks;
    config.pipeline_parallel_size = stages;
    config.threads = ranks * stages;
    LLM llm(config);
    const SamplingParams params{.max_tokens = 4, .logprobs = 2};
    const std::vector<Prompt> prompts(3, std::vector<int32_t>{1, 2, 3});
    for (const RequestOutput& output : llm.generate(prompts, params)) {
      EXPECT_THAT(output.error, HasSubstr("logits are not finite"));
      EXPECT_EQ(output.outputs[0].finish_reason, FinishReason::kAbort);
      EXPECT_TRUE(output.outputs[0].token_ids.empty());
    }
  }
}

TEST(EngineStages, EndTogetherWhenOneFails) {
  EngineConfig config = base_config("qwen3-tied");
  config.tensor_parallel_size = 2;
  config.pipeline_parallel_size = 2;
  config.threads = 4;
  LLM llm(config);
  SamplingParams params;
  params.logits_processors.push_back(
      [](std::span<const int32_t>, std::span<float>) { throw Error("the callback fails"); });
  const auto generate = [&] {
    try {
      llm.generate({std::vector<int32_t>{1, 2, 3}}, params);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(generate(), "the callback fails");
}

TEST(EngineStages, ArePlannedAsTheyAre) {
  EngineConfig config = base_config("qwen3-tied");
  const MemoryPlan one = plan(config);
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  const MemoryPlan two = plan(config);
  EXPECT_EQ(two.pipeline_parallel_size, 2);
  EXPECT_EQ(two.num_parameters, one.num_parameters);
  // Each layer's part of the KV cache is in one stage.
  EXPECT_EQ(two.bytes_per_block, one.bytes_per_block);
  const auto bytes_of = [](const MemoryPlan& memory, std::string_view name) {
    for (const PlannedBuffer& buffer : memory.buffers) {
      if (buffer.name == name) return buffer.bytes;
    }
    ADD_FAILURE() << name;
    return int64_t{0};
  };
  for (const char* name : {"embedding", "attention weights", "MLP weights", "norm weights"}) {
    EXPECT_EQ(bytes_of(two, name), bytes_of(one, name)) << name;
  }
  // The last stage has a copy of the table that the first one embeds with.
  EXPECT_EQ(bytes_of(one, "output layer"), 0);
  EXPECT_EQ(bytes_of(two, "output layer"), bytes_of(two, "embedding"));
}

TEST(EngineStages, AreNoMoreThanLayersAndThreads) {
  const auto refused = [](int stages, int threads) -> std::string {
    EngineConfig config = base_config("qwen3-tied");
    config.pipeline_parallel_size = stages;
    config.threads = threads;
    try {
      plan(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused(3, 3),
              HasSubstr("--pipeline-parallel-size is 3, but the model has 2 layers"));
  EXPECT_THAT(refused(2, 1), HasSubstr("--pipeline-parallel-size 2 needs a thread for each rank"));
  EXPECT_THAT(refused(0, 1), HasSubstr("--pipeline-parallel-size is 0"));
}

}  // namespace
}  // namespace quire
