// A model cut into stages computes what one stage computes, bit for bit, in any schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized_test_util.h"
#include "engine/damaged_model.h"
#include "engine/random_requests.h"
#include "engine/speculative_test_util.h"
#include "engine/stages_test_util.h"
#include "quire/llm.h"
#include "quire/plan.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

// Compares with one stage of as many ranks.
void expect_results_of_one_stage(EngineConfig config, int stages, int ranks, uint32_t seed,
                                 const std::vector<int64_t>& layers = {}) {
  std::mt19937 random(seed);
  config.tensor_parallel_size = ranks;
  config.threads = ranks;
  const std::vector<RandomRequest> requests = requests_with_penalties(random, config);
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));

  config.pipeline_parallel_size = stages;
  config.pipeline_layers = layers;
  RunTotals totals;
  constexpr int kTrials = kSanitized ? 3 : 6;
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

TEST(EngineStages, FourComputeWhatOneComputes) {
  const DeepModel model(5);
  const EngineConfig config = model.config();
  expect_results_of_one_stage(config, 4, 1, 6);
  expect_results_of_one_stage(config, 4, 1, 7, {1, 2, 1, 1});
}

TEST(EngineStages, ComputeWithIntegersWhatOneComputes) {
  const DeepModel model(4);
  EngineConfig config = model.config();
  config.quantization = "int8";
  config.kv_cache_dtype = "int8";
  expect_results_of_one_stage(config, 3, 1, 8);
}

TEST(EngineStages, ComputeWithNarrowCachesWhatOneComputes) {
  EngineConfig config = base_config("qwen3-tied");
  config.kv_cache_dtype = "fp8";
  expect_results_of_one_stage(config, 2, 2, 9);
  config.kv_cache_dtype = "int8";
  expect_results_of_one_stage(config, 2, 2, 10);
}

TEST(EngineStages, ComputeWithDraftsWhatOneComputesWithout) {
  EngineConfig config = base_config("qwen3-tied");
  expect_same_answers(drafts_by("ngram", 4), config, 11, 2);
  config.tensor_parallel_size = 2;
  config.threads = 2;
  expect_same_answers(drafts_by("suffix", 7), config, 13, 2);
  expect_same_answers(drafts_by("ngram", 5), base_config("qwen2-sliding"), 14, 3);
}

TEST(EngineStages, FourWithDraftsComputeWhatOneComputesWithout) {
  const DeepModel model(5);
  expect_same_answers(drafts_by("ngram", 3), model.config(), 15, 4);
}

TEST(EngineStages, CallbacksSeeWhatTheySeeInOneStage) {
  const DeepModel model(4);
  const auto generate = [&model](int stages) {
    EngineConfig config = model.config();
    config.pipeline_parallel_size = stages;
    config.threads = stages;
    return answers_with_callbacks(config);
  };
  const auto expected = generate(1);
  EXPECT_EQ(expected.size(), 18u);
  for (const int stages : {2, 4}) EXPECT_EQ(generate(stages), expected) << stages << " stages";
}

TEST(EngineStages, CountTheirSteps) {
  EngineConfig config = base_config("qwen3-tied");
  EXPECT_TRUE(LLMEngine(config).stats().stages.empty());
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  LLMEngine engine(config);
  engine.add_request("a", std::vector<int32_t>{1, 2, 3}, {.max_tokens = 4, .ignore_eos = true});
  while (!engine.is_finished()) engine.step();
  const EngineStats stats = engine.stats();
  ASSERT_EQ(stats.stages.size(), 2u);
  for (const StageStats& stage : stats.stages) {
    EXPECT_GE(stage.num_steps, 3) << "the first stage may not have counted the last of four yet";
    EXPECT_GE(stage.busy_s, 0);
  }
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
  EXPECT_TRUE(one.stages.empty());
  ASSERT_EQ(two.stages.size(), 2u);
  EXPECT_EQ(two.stages[1].first_layer, 1);
  int64_t weights = 0;
  int64_t kv_bytes = 0;
  for (const PlannedStage& stage : two.stages) {
    EXPECT_EQ(stage.num_layers, 1);
    weights += stage.weight_bytes;
    kv_bytes += stage.kv_bytes;
  }
  EXPECT_EQ(kv_bytes, bytes_of(two, "kv cache"));
  EXPECT_EQ(weights + kv_bytes + bytes_of(two, "activations") + bytes_of(two, "scratch") +
                bytes_of(two, "messages"),
            two.total_bytes);
}

TEST(EngineStages, ArePlannedForGpusThatAreNotThere) {
  const DeepModel model(5);
  EngineConfig config = model.config();
  config.device = "cuda";
  config.threads = 8;
  config.tensor_parallel_size = 2;
  config.pipeline_parallel_size = 4;
  config.max_num_seqs = 64;
  constexpr int64_t kMemory = int64_t{4} << 30;
  const MemoryPlan memory = plan_for_gpus(config, kMemory);
  EXPECT_EQ(memory.device, "cuda");
  EXPECT_THAT(memory.device_name, HasSubstr("8 GPUs of 4 GiB"));
  EXPECT_EQ(memory.stages.size(), 4u);
  EXPECT_LE(memory.total_bytes, memory.available_bytes);
  EXPECT_THROW(plan_for_gpus(config, 0), Error);
  EXPECT_THROW(plan_for_gpus(config, std::numeric_limits<int64_t>::max()), Error);
  config.num_gpu_blocks_override = 100'000'000;
  EXPECT_THROW(plan_for_gpus(config, kMemory), Error);
  config.device = "cpu";
  EXPECT_THROW(plan_for_gpus(config, kMemory), Error);
}

TEST(EngineStages, HaveTheLayersThatAreAskedFor) {
  const DeepModel model(5);
  const auto cut = [&model](std::vector<int64_t> layers) {
    EngineConfig config = model.config();
    config.pipeline_parallel_size = 3;
    config.threads = 3;
    config.pipeline_layers = std::move(layers);
    std::string text;
    try {
      for (const PlannedStage& stage : plan(config).stages) {
        text += std::to_string(stage.num_layers) + " ";
      }
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return text;
  };
  EXPECT_EQ(cut({1, 3, 1}), "1 3 1 ");
  EXPECT_EQ(cut({2, 3}),
            "--pipeline-layers has 2 numbers, but --pipeline-parallel-size is 3; expected one "
            "number a stage.");
  EXPECT_EQ(cut({2, 3, 0}),
            "--pipeline-layers: a stage has 0 layers; expected 1 to 5, the model's layers.");
  EXPECT_EQ(cut({2, 3, 1}),
            "--pipeline-layers is 6 together, but the model has 5 layers; expected numbers that "
            "add up to these.");
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
