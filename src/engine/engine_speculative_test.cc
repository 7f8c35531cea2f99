// Speculation changes how many steps an answer takes and nothing else: the same tokens and
// bit-equal log-probabilities as without, whatever the schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/random_requests.h"
#include "quire/error.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

SpeculativeConfig ngram(int num_tokens) {
  SpeculativeConfig config;
  config.method = "ngram";
  config.num_speculative_tokens = num_tokens;
  config.prompt_lookup_min = 1;
  config.prompt_lookup_max = 3;
  return config;
}

SpeculativeConfig suffix(int num_tokens) {
  SpeculativeConfig config;
  config.method = "suffix";
  config.num_speculative_tokens = num_tokens;
  config.suffix_decoding_max_cached_requests = 5;
  return config;
}

// Requests whose prompts repeat themselves and whose answers do, so that drafts come and many are
// kept: a bias towards a few tokens.
std::vector<RandomRequest> repetitive_requests(std::mt19937& random, int64_t vocab_size) {
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

void expect_same_answers(const SpeculativeConfig& speculation, const std::string& model,
                         uint32_t seed) {
  std::mt19937 random(seed);
  EngineConfig config = base_config(model);
  const std::vector<RandomRequest> requests =
      repetitive_requests(random, LLMEngine(config).vocab_size());
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));
  config.speculative_config = speculation;
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
  EXPECT_GT(totals.num_accepted_drafts, 0) << "the answers were meant to repeat themselves";
}

TEST(EngineSpeculative, NgramDraftsChangeNoAnswer) {
  uint32_t seed = 21;
  for (const int num_tokens : {1, 2, 4, 8}) {
    expect_same_answers(ngram(num_tokens), "qwen3-tied", seed++);
  }
  expect_same_answers(ngram(5), "qwen3-bf16", seed++);
  expect_same_answers(ngram(5), "mistral-sliding", seed++);
}

TEST(EngineSpeculative, SuffixDraftsChangeNoAnswer) {
  uint32_t seed = 31;
  for (const int num_tokens : {1, 3, 8}) {
    expect_same_answers(suffix(num_tokens), "qwen3-tied", seed++);
  }
  expect_same_answers(suffix(6), "qwen3-bf16", seed++);
}

// An answer of one token again and again, by its bias.
SamplingParams one_token_answer() {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 60;
  params.ignore_eos = true;
  params.logit_bias = {{7, 100.0f}};
  return params;
}

RequestOutput run_alone(const EngineConfig& config, const SamplingParams& params) {
  return run(config, {{.prompt = {1, 2, 3}, .params = params}}, {0}).at(0);
}

// How many drafts there are depends on what steps take here (speculator_test.cc tests how).
TEST(EngineSpeculative, AnAnswerThatRepeatsItselfTakesFewerSteps) {
  EngineConfig config = base_config("qwen3-tied");
  const RequestOutput plain = run_alone(config, one_token_answer());
  config.speculative_config = ngram(8);
  const RequestOutput drafted = run_alone(config, one_token_answer());
  expect_equal(drafted, plain, "alone");
  EXPECT_LT(drafted.metrics.num_steps, plain.metrics.num_steps);
  EXPECT_GT(drafted.metrics.num_accepted_draft_tokens, 0);
}

// The second answer is that of the first again, which only the history knows.
TEST(EngineSpeculative, SuffixDraftsComeFromEarlierAnswers) {
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 40;
  params.ignore_eos = true;
  params.repetition_penalty = 2;
  const RandomRequest request = {.prompt = {1, 2, 3}, .params = params};
  EngineConfig config = base_config("qwen3-tied");
  const std::vector<RequestOutput> plain = run(config, {request, request}, {0, 60});
  config.speculative_config = suffix(8);
  const std::vector<RequestOutput> drafted = run(config, {request, request}, {0, 60});
  for (size_t i = 0; i < 2; ++i) expect_equal(drafted[i], plain[i], "answer");
  EXPECT_GT(drafted[1].metrics.num_accepted_draft_tokens, 0);
}

TEST(EngineSpeculative, CallbacksSeeTheTokensBefore) {
  SamplingParams params = one_token_answer();
  params.logit_bias.clear();
  params.logits_processors = {[](std::span<const int32_t> ids, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -100.0f);
    logits[ids.size() % 3] = 0.0f;
  }};
  EngineConfig config = base_config("qwen3-tied");
  const RequestOutput plain = run_alone(config, params);
  config.speculative_config = ngram(4);
  const RequestOutput drafted = run_alone(config, params);
  expect_equal(drafted, plain, "alone");
  EXPECT_GT(drafted.metrics.num_accepted_draft_tokens, 0);
}

TEST(EngineSpeculative, AbortedRequestsLeaveTheOthersTheirAnswers) {
  EngineConfig config = base_config("qwen3-tied");
  const RequestOutput plain = run_alone(config, one_token_answer());
  config.speculative_config = ngram(4);
  LLMEngine engine(config);
  engine.add_request("a", std::vector<int32_t>{1, 2, 3}, one_token_answer());
  engine.add_request("b", std::vector<int32_t>{1, 2, 3}, one_token_answer());
  RequestOutput last;
  for (int step = 0; !engine.is_finished(); ++step) {
    if (step == 6) engine.abort("a");
    for (RequestOutput& output : engine.step()) {
      if (output.request_id == "b") last = std::move(output);
    }
  }
  expect_equal(last, plain, "beside an aborted one");
}

std::string refusal(const EngineConfig& config) {
  try {
    const LLMEngine engine(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(EngineSpeculative, StagesOfAPipelineAreRefused) {
  EngineConfig config = base_config("qwen3-tied");
  config.speculative_config = ngram(4);
  config.threads = 2;
  config.pipeline_parallel_size = 2;
  EXPECT_EQ(refusal(config), "--speculative-config goes with --pipeline-parallel-size 1, not 2.");
}

TEST(EngineSpeculative, ValuesOutOfRangeAreRefused) {
  EngineConfig config = base_config("qwen3-tied");
  config.speculative_config = ngram(100);
  EXPECT_EQ(refusal(config),
            "--speculative-config: num_speculative_tokens is 100; expected 1 to 16.");
}

}  // namespace
}  // namespace quire
