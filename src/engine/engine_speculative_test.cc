// Speculation changes how many steps an answer takes and nothing else: the same tokens and
// bit-equal log-probabilities as without, whatever the schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/speculative_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

SpeculativeConfig ngram(int num_tokens) {
  SpeculativeConfig config;
  config.method = "ngram";
  config.num_speculative_tokens = num_tokens;
  config.prompt_lookup_min = 1;
  config.prompt_lookup_max = 3;
  config.adaptive = false;
  return config;
}

SpeculativeConfig suffix(int num_tokens) {
  SpeculativeConfig config;
  config.method = "suffix";
  config.num_speculative_tokens = num_tokens;
  config.suffix_decoding_max_cached_requests = 5;
  config.adaptive = false;
  return config;
}

TEST(EngineSpeculative, NgramDraftsChangeNoAnswer) {
  uint32_t seed = 21;
  for (const int num_tokens : draft_lengths()) {
    expect_same_answers(ngram(num_tokens), "qwen3-tied", seed++);
  }
  expect_same_answers(ngram(5), "qwen3-bf16", seed++);
  expect_same_answers(ngram(5), "mistral-sliding", seed++);
}

// How many there are depends on what steps take here.
TEST(EngineSpeculative, DraftsThatEndWhereTheyCostTooMuchChangeNoAnswer) {
  for (SpeculativeConfig config : {ngram(8), suffix(8)}) {
    config.adaptive = true;
    expect_same_answers(config, "qwen3-tied", 39);
  }
}

TEST(EngineSpeculative, DraftsChangeNoAnswerOfNarrowCaches) {
  expect_same_answers(ngram(4), "qwen3-tied", 41, "int8");
  expect_same_answers(suffix(4), "qwen3-bf16", 42, "fp8");
}

TEST(EngineSpeculative, SuffixDraftsChangeNoAnswer) {
  uint32_t seed = 31;
  for (const int num_tokens : draft_lengths()) {
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

TEST(EngineSpeculative, ValuesOutOfRangeAreRefused) {
  EngineConfig config = base_config("qwen3-tied");
  config.speculative_config = ngram(100);
  EXPECT_EQ(refusal(config),
            "--speculative-config: num_speculative_tokens is 100; expected 1 to 16.");
}

}  // namespace
}  // namespace quire
