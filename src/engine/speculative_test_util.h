#pragma once
// For tests that compare answers with drafts to those without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/sanitized_test_util.h"
#include "engine/random_requests.h"
#include "quire/error.h"

namespace quire::engine_test {

// Numbers of drafts to test a method with.
inline std::vector<int> draft_lengths() {
  if (kSanitized) return {1, 8};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

// Drafts without a model, where what steps take does not decide whether there are any.
inline SpeculativeConfig drafts_by(const std::string& method, int num_tokens) {
  SpeculativeConfig config;
  config.method = method;
  config.num_speculative_tokens = num_tokens;
  config.prompt_lookup_min = 1;
  config.prompt_lookup_max = 3;
  config.adaptive = false;
  return config;
}

// Drafts by the model in a folder. As many as it says, whatever they cost: as above.
inline SpeculativeConfig drafter(const std::string& method, const std::filesystem::path& folder,
                                 int num_tokens) {
  SpeculativeConfig config;
  config.method = method;
  config.model = folder.string();
  config.num_speculative_tokens = num_tokens;
  config.adaptive = false;
  return config;
}

// By a golden model.
inline SpeculativeConfig draft_model(const std::string& model, int num_tokens) {
  return drafter("draft_model", golden_models() / model, num_tokens);
}

inline std::filesystem::path golden_head(const std::string& name) {
  return golden_models().parent_path() / "eagle" / name;
}

inline SpeculativeConfig eagle(const std::string& name, int num_tokens) {
  return drafter("eagle3", golden_head(name), num_tokens);
}

// For llama3.
inline SpeculativeConfig first_eagle(int num_tokens) {
  return drafter("eagle", golden_head("eagle"), num_tokens);
}

struct DraftCounts {
  int64_t made = 0;
  int64_t kept = 0;
};

inline DraftCounts counts_of(const EngineConfig& config,
                             const std::vector<RandomRequest>& requests) {
  LLMEngine engine(config);
  for (size_t i = 0; i < requests.size(); ++i) {
    engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params);
  }
  while (!engine.is_finished()) engine.step();
  const SpeculativeStats stats = engine.stats().speculative;
  return {stats.num_draft_tokens, stats.num_accepted_tokens};
}

// A long prompt, and two that are the same.
inline std::vector<RandomRequest> greedy_requests() {
  std::mt19937 random(171);
  std::vector<RandomRequest> requests = random_requests(random, 120);
  requests.resize(3);
  for (RandomRequest& request : requests) {
    request.prompt.clear();
    for (int i = 0; i < 60; ++i) request.prompt.push_back(3 + i * 7 % 100);
    request.params = SamplingParams();
    request.params.temperature = 0;
    request.params.max_tokens = 30;
    request.params.ignore_eos = true;
  }
  return requests;
}

// Requests whose prompts and answers repeat themselves, because of a bias towards a few tokens, so
// that many drafts are made and kept.
inline std::vector<RandomRequest> repetitive_requests(std::mt19937& random, int64_t vocab_size) {
  std::vector<RandomRequest> requests = random_requests(random, vocab_size);
  for (size_t i = 0; i < requests.size(); ++i) {
    RandomRequest& request = requests[i];
    for (size_t j = 4; j < request.prompt.size(); ++j) request.prompt[j] = request.prompt[j % 4];
    if (i % 2 == 0) {
      request.params.logit_bias = {{3, 60.0f}, {static_cast<int32_t>(i) + 4, 59.5f}};
    }
    if (i % 3 == 0) request.params.presence_penalty = 0.5;
    if (i % 4 == 1) request.params.frequency_penalty = -0.3;
    if (i % 5 == 2)
      request.params.min_tokens = std::min<int64_t>(5, request.params.max_tokens.value_or(5));
    if (i % 6 == 3) request.params.stop_token_ids = {request.prompt.front()};
  }
  return requests;
}

// Compares answers with drafts, in a model of so many stages, to those without in one stage.
inline void expect_same_answers(const SpeculativeConfig& speculation, EngineConfig config,
                                uint32_t seed, int num_stages = 1) {
  std::mt19937 random(seed);
  const std::vector<RandomRequest> requests =
      repetitive_requests(random, LLMEngine(config).vocab_size());
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));
  config.speculative_config = speculation;
  config.pipeline_parallel_size = num_stages;
  config.threads *= num_stages;
  RunTotals totals;
  for (int trial = 0; trial < 4; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    config.enable_prefix_caching = trial % 2 == 0;
    config.async_scheduling = trial < 2;
    config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    config.max_num_seqs = draw(1, 40);
    config.num_gpu_blocks_override = 10 + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    const auto outputs = run(config, requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_GT(totals.prefix_cache_hits, 0) << "prompts were meant to be found in the cache";
  EXPECT_GT(totals.num_accepted_drafts, 0) << "the answers were meant to repeat themselves";
}

inline void expect_same_answers(const SpeculativeConfig& speculation, const std::string& model,
                                uint32_t seed, const std::string& kv_cache_dtype = "auto") {
  EngineConfig config = base_config(model);
  config.kv_cache_dtype = kv_cache_dtype;
  expect_same_answers(speculation, config, seed);
}

// The error that an engine with this config throws.
inline std::string refusal(const EngineConfig& config) {
  try {
    const LLMEngine engine(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace quire::engine_test
