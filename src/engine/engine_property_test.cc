// The result of a request does not depend on its neighbours: the same tokens and bit-equal
// log-probabilities alone and in any random schedule.
#include <gtest/gtest.h>

#include <random>

#include "engine/test_models.h"
#include "quire/llm_engine.h"

namespace quire {
namespace {

struct Request {
  std::vector<int32_t> prompt;
  SamplingParams params;
};

EngineConfig base_config(const std::string& model) {
  EngineConfig config;
  config.model = (engine_test::golden_models() / model).string();
  config.skip_tokenizer_init = true;
  config.max_model_len = 160;
  config.threads = 1;
  return config;
}

std::vector<Request> random_requests(std::mt19937& random, int64_t vocab_size) {
  const auto draw = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<int32_t> shared(static_cast<size_t>(draw(20, 60)));
  for (int32_t& id : shared) id = static_cast<int32_t>(draw(0, vocab_size - 1));
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) {
    Request request;
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

bool equal(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].size() != b[i].size()) return false;
    for (size_t j = 0; j < a[i].size(); ++j) {
      if (a[i][j].token_id != b[i][j].token_id || a[i][j].logprob != b[i][j].logprob) return false;
    }
  }
  return true;
}

void expect_equal(const RequestOutput& actual, const RequestOutput& expected,
                  const std::string& where) {
  EXPECT_TRUE(equal(actual.prompt_logprobs, expected.prompt_logprobs)) << where;
  ASSERT_EQ(actual.outputs.size(), expected.outputs.size()) << where;
  for (size_t i = 0; i < actual.outputs.size(); ++i) {
    EXPECT_EQ(actual.outputs[i].token_ids, expected.outputs[i].token_ids) << where;
    EXPECT_EQ(actual.outputs[i].finish_reason, expected.outputs[i].finish_reason) << where;
    EXPECT_TRUE(equal(actual.outputs[i].logprobs, expected.outputs[i].logprobs)) << where;
  }
}

// Runs the requests, each added before the step drawn for it.
std::vector<RequestOutput> run(const EngineConfig& config, const std::vector<Request>& requests,
                               const std::vector<int>& arrival_steps, int64_t* num_preemptions) {
  LLMEngine engine(config);
  std::vector<RequestOutput> outputs(requests.size());
  size_t added = 0;
  for (int step = 0; added < requests.size() || !engine.is_finished(); ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (arrival_steps[i] != step) continue;
      engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params,
                         {.output_kind = OutputKind::kFinalOnly});
      ++added;
    }
    for (RequestOutput& output : engine.step()) {
      outputs[std::stoul(output.request_id)] = std::move(output);
    }
  }
  if (num_preemptions != nullptr) *num_preemptions += engine.stats().num_preemptions;
  return outputs;
}

void expect_independence(const std::string& model, const std::string& dtype, uint32_t seed) {
  std::mt19937 random(seed);
  EngineConfig config = base_config(model);
  config.dtype = dtype;
  config.enable_prefix_caching = false;
  config.async_scheduling = false;
  const std::vector<Request> requests = random_requests(random, LLMEngine(config).vocab_size());
  std::vector<RequestOutput> expected;
  for (const Request& request : requests) {
    expected.push_back(run(config, {request}, {0}, nullptr)[0]);
  }

  int64_t num_preemptions = 0;
  for (int trial = 0; trial < 6; ++trial) {
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
    const int64_t least = (160 + trial_config.block_size - 1) / trial_config.block_size;
    trial_config.num_gpu_blocks_override = least + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    const auto outputs = run(trial_config, requests, arrival_steps, &num_preemptions);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(num_preemptions, 0) << "the schedules were meant to preempt";
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

TEST(EngineProperty, TwoRanksRepeatThemselves) {
  std::mt19937 random(8);
  EngineConfig config = base_config("qwen3-tied");
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const std::vector<Request> requests = random_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals, nullptr);
  config.max_num_batched_tokens = 23;
  const auto outputs = run(config, requests, arrivals, nullptr);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace quire
