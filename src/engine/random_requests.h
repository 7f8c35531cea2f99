#pragma once
// Random requests to a tiny checkpoint, and engines that run them: for tests that compare the
// outputs of different engines and schedules.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/test_models.h"
#include "quire/llm_engine.h"

namespace quire::engine_test {

struct RandomRequest {
  std::vector<int32_t> prompt;
  SamplingParams params;
  std::string lora{};
};

inline EngineConfig base_config(const std::string& model) {
  EngineConfig config;
  config.model = (golden_models() / model).string();
  config.skip_tokenizer_init = true;
  config.max_model_len = 160;
  config.threads = 1;
  return config;
}

inline std::vector<RandomRequest> random_requests(std::mt19937& random, int64_t vocab_size) {
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<int32_t> shared(static_cast<size_t>(draw(20, 60)));
  for (int32_t& id : shared) id = static_cast<int32_t>(draw(0, vocab_size - 1));
  std::vector<RandomRequest> requests;
  for (int i = 0; i < 12; ++i) {
    RandomRequest request;
    if (draw(0, 1) == 0) {
      request.prompt.assign(shared.begin(),
                            shared.begin() + draw(1, static_cast<int64_t>(shared.size())));
    }
    for (int64_t n = draw(1, 40); n > 0; --n) {
      request.prompt.push_back(static_cast<int32_t>(draw(0, vocab_size - 1)));
    }
    request.params.max_tokens = draw(1, 40);
    request.params.temperature = draw(0, 2) == 0 ? 0.0 : 0.8;
    request.params.seed = static_cast<uint64_t>(draw(0, 1000));
    request.params.n = static_cast<int>(draw(1, 3));
    request.params.logprobs = 5;
    request.params.ignore_eos = draw(0, 1) == 0;
    if (draw(0, 2) == 0) request.params.top_k = 20;
    if (draw(0, 2) == 0) request.params.top_p = 0.9;
    if (draw(0, 3) == 0) request.params.repetition_penalty = 1.2;
    if (draw(0, 3) == 0) request.params.prompt_logprobs = 2;
    requests.push_back(request);
  }
  return requests;
}

inline bool equal(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (a[i][j].token_id != b[i][j].token_id || a[i][j].logprob != b[i][j].logprob) return false;
    }
  }
  return true;
}

inline void expect_equal(const RequestOutput& actual, const RequestOutput& expected,
                         const std::string& where) {
  EXPECT_TRUE(equal(actual.prompt_logprobs, expected.prompt_logprobs)) << where;
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size()) << where;
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    EXPECT_EQ(actual.outputs[i].token_ids, expected.outputs[i].token_ids) << where;
    EXPECT_EQ(actual.outputs[i].finish_reason, expected.outputs[i].finish_reason) << where;
    EXPECT_TRUE(equal(actual.outputs[i].logprobs, expected.outputs[i].logprobs)) << where;
  }
}

// Sums over several runs.
struct RunTotals {
  int64_t num_preemptions = 0;
  int64_t prefix_cache_hits = 0;  // tokens
  int64_t num_accepted_drafts = 0;
  int64_t num_forced_tokens = 0;
};

// Runs the requests; request i is added before step arrival_steps[i]. Adds to `totals`.
inline std::vector<RequestOutput> run(const EngineConfig& config,
                                      const std::vector<RandomRequest>& requests,
                                      const std::vector<int>& arrival_steps,
                                      RunTotals* totals = nullptr) {
  LLMEngine engine(config);
  std::vector<RequestOutput> outputs(requests.size());
  size_t added = 0;
  for (int step = 0; added < requests.size() || !engine.is_finished(); ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (arrival_steps[i] != step) continue;
      engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params,
                         {.output_kind = OutputKind::kFinalOnly,
                          .client = i % 3,
                          .client_weight = i % 3 == 0 ? 25 : kDefaultClientWeight,
                          .priority = i % 2 == 0 ? 1 : -1,
                          .lora = requests[i].lora});
      ++added;
    }
    for (RequestOutput& output : engine.step()) {
      outputs[std::stoul(output.request_id)] = std::move(output);
    }
  }
  if (totals != nullptr) {
    totals->num_preemptions += engine.stats().num_preemptions;
    totals->prefix_cache_hits += engine.stats().prefix_cache_hits;
    for (const RequestOutput& output : outputs) {
      totals->num_accepted_drafts += output.metrics.num_accepted_draft_tokens;
      totals->num_forced_tokens += output.metrics.num_forced_tokens;
    }
  }
  return outputs;
}

}  // namespace quire::engine_test
