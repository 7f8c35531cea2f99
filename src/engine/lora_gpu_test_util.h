#pragma once
// Random adapters on GPUs and on the CPU, and requests to them: for tests that compare the two.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/random_requests.h"
#include "engine/speculative_test_util.h"
#include "quire/llm_engine.h"

namespace quire::engine_test {

// Its parameter is the number of tensor-parallel ranks.
class AdaptersOnGpus : public testing::TestWithParam<int> {
 protected:
  EngineConfig config_with(const std::vector<RandomAdapter>& adapters, const std::string& model) {
    EngineConfig config = base_config(model);
    config.device = "cpu";
    config.dtype = "float32";
    config.kv_cache_memory_bytes = int64_t{1} << 24;
    config.lora.enabled = true;
    config.lora.max_lora_rank = 33;
    config.lora.max_loras = static_cast<int>(adapters.size());
    for (const RandomAdapter& adapter : adapters) {
      const std::string name = name_of_adapter(adapter);
      write_adapter(root_.path() / model / name, model, adapter);
      config.lora.modules.push_back({name, (root_.path() / model / name).string()});
    }
    return config;
  }

  static EngineConfig on_gpus(EngineConfig config) {
    config.device = "cuda";
    config.tensor_parallel_size = GetParam();
    config.threads = GetParam();
    return config;
  }

  static std::string name_of_adapter(const RandomAdapter& adapter) {
    return std::string(1, static_cast<char>('a' + adapter.seed));
  }

  // Greedy, of prompts that share a beginning, with each adapter in turn and without.
  static std::vector<RandomRequest> requests_for(const std::vector<RandomAdapter>& adapters) {
    std::vector<RandomRequest> requests;
    for (size_t i = 0; i < 2 * (adapters.size() + 1); ++i) {
      RandomRequest request;
      for (size_t j = 0; j < 5 + 9 * (i % 5); ++j) {
        request.prompt.push_back(static_cast<int32_t>(1 + (j < 20 ? j * 7 : j * 5 + i) % 50));
      }
      request.params.temperature = 0;
      request.params.ignore_eos = true;
      request.params.max_tokens = 3 + static_cast<int64_t>(i);
      request.params.logprobs = 2;
      if (i % 3 == 0) request.params.prompt_logprobs = 1;
      const size_t which = i % (adapters.size() + 1);
      if (which > 0) request.lora = name_of_adapter(adapters[which - 1]);
      requests.push_back(request);
    }
    return requests;
  }

  static std::vector<int> arrivals_of(const std::vector<RandomRequest>& requests) {
    std::vector<int> arrivals;
    for (int i = 0; i < std::ssize(requests); ++i) arrivals.push_back(i / 2);
    return arrivals;
  }

  static void expect_close_logprobs(const std::vector<PositionLogprobs>& actual,
                                    const std::vector<PositionLogprobs>& expected,
                                    const std::string& where) {
    ASSERT_EQ(actual.size(), expected.size()) << where;
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].size(), expected[i].size()) << where << ", position " << i;
      for (size_t j = 0; j < actual[i].size(); ++j) {
        EXPECT_EQ(actual[i][j].token_id, expected[i][j].token_id) << where << ", position " << i;
        EXPECT_NEAR(actual[i][j].logprob, expected[i][j].logprob, 2e-4)
            << where << ", position " << i;
      }
    }
  }

  static void expect_same(const std::vector<RequestOutput>& actual,
                          const std::vector<RequestOutput>& expected, const std::string& where) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      const std::string request = where + ", request " + std::to_string(i);
      ASSERT_EQ(actual[i].outputs.size(), 1U) << request;
      EXPECT_EQ(actual[i].outputs[0].token_ids, expected[i].outputs[0].token_ids) << request;
      expect_close_logprobs(actual[i].outputs[0].logprobs, expected[i].outputs[0].logprobs,
                            request);
      expect_close_logprobs(actual[i].prompt_logprobs, expected[i].prompt_logprobs,
                            request + ", its prompt");
    }
  }

  // Of as many requests that each rank has rows to sample, with tokens that repeat, so that n-grams
  // draft.
  static void expect_tokens_of_the_cpu_with_drafts(const EngineConfig& config,
                                                   std::vector<RandomRequest> requests) {
    const size_t count = requests.size();
    for (size_t i = count; i < 24; ++i) requests.push_back(requests[i % count]);
    for (RandomRequest& request : requests) {
      request.params.logprobs.reset();
      request.params.prompt_logprobs.reset();
      request.params.max_tokens = 24;
      for (const int32_t id : {3, 14, 15, 92}) request.params.logit_bias[id] = 25;
    }
    const std::vector<int> arrivals(requests.size(), 0);
    const auto expected = run(config, requests, arrivals);
    expect_same(run(on_gpus(config), requests, arrivals), expected, "without drafts");
    EngineConfig drafts = on_gpus(config);
    drafts.speculative_config = drafts_by("ngram", 3);
    RunTotals totals;
    expect_same(run(drafts, requests, arrivals, &totals), expected, "with drafts");
    EXPECT_GT(totals.num_accepted_drafts, 0) << "the answers were meant to repeat themselves";
  }

  // In two stages.
  static void expect_logprobs_of_the_cpu_in_stages(const EngineConfig& config,
                                                   const std::vector<RandomRequest>& requests,
                                                   const std::string& where) {
    const std::vector<int> arrivals = arrivals_of(requests);
    EngineConfig stages = on_gpus(config);
    stages.pipeline_parallel_size = 2;
    stages.threads *= 2;
    expect_same(run(stages, requests, arrivals), run(config, requests, arrivals), where);
  }

  TemporaryFolder root_;
};

}  // namespace quire::engine_test
