// Constrained answers are texts of their constraints and do not depend on the schedule: the same
// tokens and bit-equal log-probabilities in any order, with preemption, in stages and with drafts.
#include <gtest/gtest.h>

#include <random>

#include "base/sanitized_test_util.h"
#include "engine/constrained_requests.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

// Room for a sequence or two, so that others are preempted.
void few_blocks(EngineConfig& config) {
  config.max_model_len = 128;
  config.kv_cache_memory_bytes.reset();
  config.num_gpu_blocks_override = 8;
}

// Requests and what an engine that runs one at a time answers.
class StructuredOutputProperty : public testing::Test {
 protected:
  StructuredOutputProperty() {
    EngineConfig config = lexicon_config();
    config.async_scheduling = false;
    config.max_num_seqs = 1;
    config.enable_prefix_caching = false;
    std::mt19937 random(11);
    requests_ = random_constrained_requests(random, kSanitized ? 12 : 16);
    LLMEngine engine(config);
    expected_ = answers_of(engine, requests_);
    for (size_t i = 0; i < requests_.size(); ++i) expect_matches(requests_[i], expected_[i]);
  }

  RunTotals run(const EngineConfig& config, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests_.size(); ++i) {
      arrival_steps.push_back(std::uniform_int_distribution<int>(0, 6)(random));
    }
    LLMEngine engine(config);
    const auto outputs = answers_of(engine, requests_, arrival_steps);
    RunTotals totals{.num_preemptions = engine.stats().num_preemptions};
    for (size_t i = 0; i < requests_.size(); ++i) {
      expect_equal(outputs[i], expected_[i], "request " + std::to_string(i));
      totals.num_accepted_drafts += outputs[i].metrics.num_accepted_draft_tokens;
      for (size_t j = 0; j < outputs[i].outputs.size(); ++j) {
        EXPECT_EQ(outputs[i].outputs[j].text, expected_[i].outputs[j].text);
        EXPECT_EQ(outputs[i].outputs[j].steered_to_end, expected_[i].outputs[j].steered_to_end);
      }
    }
    return totals;
  }

  std::vector<ConstrainedRequest> requests_;
  std::vector<RequestOutput> expected_;
};

TEST_F(StructuredOutputProperty, AnswersDoNotDependOnTheSchedule) {
  int64_t num_preemptions = 0;
  for (const bool async : {false, true}) {
    EngineConfig config = lexicon_config();
    config.async_scheduling = async;
    num_preemptions += run(config, 1).num_preemptions;
    config.threads = 3;
    config.max_num_batched_tokens = 7;
    few_blocks(config);
    num_preemptions += run(config, 2).num_preemptions;
  }
  EXPECT_GT(num_preemptions, 0) << "the schedules were meant to preempt";
}

TEST_F(StructuredOutputProperty, AnswersDoNotDependOnStages) {
  EngineConfig config = lexicon_config();
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  run(config, 3);
}

TEST_F(StructuredOutputProperty, AnswersDoNotDependOnDrafts) {
  SpeculativeConfig speculation;
  speculation.num_speculative_tokens = 4;
  for (const char* method : {"ngram", "suffix", "draft_model", "eagle3"}) {
    speculation.method = method;
    if (speculation.method == "draft_model" || speculation.method == "eagle3") {
      speculation.model = lexicon_config().model;
      if (speculation.method == "eagle3") speculation.model += "-eagle3";
      speculation.adaptive = false;
    }
    speculation.prompt_lookup_min = speculation.method == "ngram" ? std::optional(1) : std::nullopt;
    speculation.prompt_lookup_max = speculation.method == "ngram" ? std::optional(3) : std::nullopt;
    EngineConfig config = lexicon_config();
    config.speculative_config = speculation;
    EXPECT_GT(run(config, 4).num_accepted_drafts, 0) << method;
    config.max_num_batched_tokens = 17;
    few_blocks(config);
    run(config, 5);
  }
}

// Text without a choice takes few steps, also beside drafters, and has the tokens that it has where
// each takes a step.
TEST(ForcedText, IsTheSameInFewerSteps) {
  std::mt19937 random(13);
  const auto requests = random_forced_requests(random, kSanitized ? 5 : 14);
  EngineConfig config = lexicon_config();
  config.structured_whitespace = "none";
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(without_drafts(config));
    expected = answers_of(engine, requests);
  }
  for (size_t i = 0; i < requests.size(); ++i) expect_matches(requests[i], expected[i]);
  for (const char* method : {"", "ngram", "suffix", "draft_model", "eagle3"}) {
    const std::string name = method;
    config.speculative_config.reset();
    if (!name.empty()) config.speculative_config.emplace().method = name;
    if (name == "draft_model" || name == "eagle3") {
      config.speculative_config->model = config.model + (name == "eagle3" ? "-eagle3" : "");
      config.speculative_config->adaptive = false;
    }
    for (const bool async : {false, true}) {
      SCOPED_TRACE(name + (async ? ", async" : ""));
      EngineConfig trial = config;
      trial.async_scheduling = async;
      if (async) few_blocks(trial);
      trial.max_model_len = 256;
      if (async) trial.num_gpu_blocks_override = 20;
      std::vector<int> arrival_steps;
      for (size_t i = 0; i < requests.size(); ++i) {
        arrival_steps.push_back(std::uniform_int_distribution<int>(0, 6)(random));
      }
      LLMEngine engine(trial);
      const auto outputs = answers_of(engine, requests, arrival_steps);
      int64_t num_steps = 0;
      for (size_t i = 0; i < requests.size(); ++i) {
        expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
        num_steps += outputs[i].metrics.num_steps;
      }
      EXPECT_LT(num_steps, num_tokens_of(expected) / 2);
    }
  }
}

// Forced text does not count as the drafter's.
TEST(ForcedText, IsNoDraftOfTheDrafter) {
  EngineConfig config = lexicon_config();
  config.speculative_config.emplace().method = "suffix";
  config.speculative_config->adaptive = false;
  LLMEngine engine(config);
  SamplingParams params{.temperature = 1, .max_tokens = 60};
  params.structured_output = choice({"cats like to sleep in the sun, and zebras do remember it."});
  const RequestOutput output = answers_of(engine, {{.params = params}})[0];
  EXPECT_LE(output.metrics.num_steps, 3);
  EXPECT_GT(output.metrics.num_forced_tokens, 10);
  EXPECT_EQ(output.metrics.num_drafts, 0);
  EXPECT_EQ(output.metrics.num_draft_tokens, 0);
  EXPECT_EQ(output.metrics.num_accepted_draft_tokens, 0);
  EXPECT_EQ(engine.stats().speculative.num_draft_tokens, 0);
  EXPECT_EQ(engine.stats().speculative.num_accepted_tokens, 0);
}

TEST(StructuredOutputRanks, AnswersOfTwoRanksAreOfTheirConstraints) {
  std::mt19937 random(12);
  const auto requests = random_constrained_requests(random, 10);
  EngineConfig config = lexicon_config();
  config.tensor_parallel_size = 2;
  config.threads = 2;
  LLMEngine engine(config);
  const auto outputs = answers_of(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_matches(requests[i], outputs[i]);
}

}  // namespace
}  // namespace quire
