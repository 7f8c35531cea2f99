#pragma once
// For tests that compare answers with drafts on GPUs to those without.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/gpu_outputs_test_util.h"
#include "engine/gpu_test_util.h"
#include "engine/speculative_test_util.h"

namespace quire::engine_test {

// Tokens that the host samples and tokens that the GPU samples; in a run without log-probabilities
// ranks have each a share of the rows.
inline std::vector<RandomRequest> requests_for_gpus(std::mt19937& random, bool with_logprobs) {
  constexpr int64_t kVocabSize = 128;
  std::vector<RandomRequest> requests = repetitive_requests(random, kVocabSize);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& params = requests[i].params;
    if (with_logprobs && i % 3 != 0) continue;
    params.logprobs.reset();
    params.prompt_logprobs.reset();
  }
  return requests;
}

inline EngineConfig tiny_on_gpus(int ranks) {
  EngineConfig config = base_config("qwen3-tied");
  config.device = "cuda";
  config.dtype = "float32";
  config.tensor_parallel_size = ranks;
  config.threads = ranks;
  config.kv_cache_memory_bytes = int64_t{1} << 26;
  return config;
}

// Under a random schedule with too few blocks, captured and not.
inline void expect_no_change(EngineConfig config, const std::vector<RandomRequest>& requests,
                             const std::vector<RequestOutput>& expected, int trial,
                             std::mt19937& random, RunTotals& totals) {
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  config.enforce_eager = trial % 2 == 1;
  config.enable_prefix_caching = trial % 4 < 2;
  config.async_scheduling = trial % 3 != 0;
  config.max_num_batched_tokens = trial % 2 == 0 ? 512 : draw(3, 40);
  config.max_num_seqs = trial % 2 == 0 ? 40 : draw(1, 40);
  config.kv_cache_memory_bytes.reset();
  config.num_gpu_blocks_override = 10 + draw(0, 6);
  std::vector<int> arrival_steps;
  for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
  const auto outputs = run(config, requests, arrival_steps, &totals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i],
                        "trial " + std::to_string(trial) + ", request " + std::to_string(i));
  }
}

}  // namespace quire::engine_test
