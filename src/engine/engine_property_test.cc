// The result of a request does not depend on its neighbours: its tokens and, bit for bit, its
// log-probabilities are the same by itself and in any random schedule.
#include <gtest/gtest.h>

#include <random>

#include "base/ceil_div.h"
#include "base/sanitized_test_util.h"
#include "engine/random_requests.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

void expect_independence(const std::string& model, const std::string& dtype, uint32_t seed,
                         const std::string& kv_cache_dtype = "auto") {
  std::mt19937 random(seed);
  EngineConfig config = base_config(model);
  config.dtype = dtype;
  config.kv_cache_dtype = kv_cache_dtype;
  config.enable_prefix_caching = false;
  config.async_scheduling = false;
  const std::vector<RandomRequest> requests =
      random_requests(random, LLMEngine(config).vocab_size());
  std::vector<RequestOutput> expected;
  for (const RandomRequest& request : requests) {
    expected.push_back(run(config, {request}, {0})[0]);
  }

  RunTotals totals;
  constexpr int kTrials = kSanitized ? 3 : 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = config;
    trial_config.enable_prefix_caching = draw(0, 1) == 0;
    trial_config.async_scheduling = draw(0, 1) == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(1, 40);
    trial_config.block_size = draw(0, 1) == 0 ? 16 : 48;
    trial_config.threads = draw(1, 4);
    trial_config.target_step_s = draw(0, 1) == 0 ? 0 : 1e-5;  // chunks of prompts cut by time
    const int64_t least = ceil_div(160, trial_config.block_size);
    trial_config.num_gpu_blocks_override = least + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    const auto outputs = run(trial_config, requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
}

TEST(EngineProperty, Float32ResultsDoNotDependOnTheSchedule) {
  for (uint32_t seed = 1; seed <= 3; ++seed) expect_independence("qwen3-tied", "float32", seed);
}

TEST(EngineProperty, BFloat16ResultsDoNotDependOnTheSchedule) {
  for (uint32_t seed = 4; seed <= 6; ++seed) expect_independence("qwen3-bf16", "bfloat16", seed);
}

TEST(EngineProperty, SlidingWindowResultsDoNotDependOnTheSchedule) {
  expect_independence("mistral-sliding", "float32", 7);
}

TEST(EngineProperty, ResultsOfNarrowCachesDoNotDependOnTheSchedule) {
  expect_independence("qwen3-bf16", "bfloat16", 9, "int8");
  expect_independence("qwen3-bf16", "bfloat16", 10, "fp8");
  expect_independence("mistral-sliding", "float32", 11, "int8");
}

void expect_repeats_of_two_ranks(const std::string& kv_cache_dtype) {
  std::mt19937 random(8);
  EngineConfig config = base_config("qwen3-tied");
  config.kv_cache_dtype = kv_cache_dtype;
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const std::vector<RandomRequest> requests =
      random_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  config.max_num_batched_tokens = 23;
  const auto outputs = run(config, requests, arrivals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
  }
}

TEST(EngineProperty, TwoRanksRepeatThemselves) {
  for (const char* kv_cache_dtype : {"auto", "int8", "fp8", "fp8_e5m2"}) {
    SCOPED_TRACE(kv_cache_dtype);
    expect_repeats_of_two_ranks(kv_cache_dtype);
  }
}

}  // namespace
}  // namespace quire
