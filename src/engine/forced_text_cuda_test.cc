// Text without a choice on GPUs: it is drafted behind tokens that are in flight, takes few steps,
// and has the tokens that it has where each takes a step.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/sanitized_test_util.h"
#include "engine/constrained_requests.h"
#include "engine/speculative_gpu_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

struct ForcedLayout {
  int stages;
  int ranks;
};

void PrintTo(const ForcedLayout& layout, std::ostream* out) {
  *out << layout.stages << "x" << layout.ranks;
}

class ForcedTextOnGpus : public testing::TestWithParam<ForcedLayout> {
 protected:
  void SetUp() override {
    const auto [stages, ranks] = GetParam();
    QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(stages * ranks));
    config_ = lexicon_config();
    config_.structured_whitespace = "none";
    config_.device = "cuda";
    config_.dtype = "float32";
    config_.pipeline_parallel_size = stages;
    config_.tensor_parallel_size = ranks;
    config_.threads = stages * ranks;
  }

  // Compares with `expected`, under a random schedule; returns the steps of all requests together.
  int64_t run(const EngineConfig& config, const std::vector<ConstrainedRequest>& requests,
              const std::vector<RequestOutput>& expected, std::mt19937& random, RunTotals& totals) {
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) {
      arrival_steps.push_back(std::uniform_int_distribution<int>(0, 12)(random));
    }
    LLMEngine engine(config);
    const auto outputs = answers_of(engine, requests, arrival_steps);
    int64_t num_steps = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
      num_steps += outputs[i].metrics.num_steps;
      totals.num_accepted_drafts += outputs[i].metrics.num_accepted_draft_tokens;
      totals.num_forced_tokens += outputs[i].metrics.num_forced_tokens;
    }
    totals.num_preemptions += engine.stats().num_preemptions;
    return num_steps;
  }

  EngineConfig config_;
};
INSTANTIATE_TEST_SUITE_P(Layouts, ForcedTextOnGpus,
                         testing::Values(ForcedLayout{1, 1}, ForcedLayout{1, 2}, ForcedLayout{2, 1},
                                         ForcedLayout{2, 2}),
                         testing::PrintToStringParamName());

TEST_P(ForcedTextOnGpus, IsTheSameInFewerSteps) {
  std::mt19937 random(51);
  const auto requests = random_forced_requests(random, kSanitized ? 6 : 12);
  std::vector<RequestOutput> expected;
  {
    EngineConfig alone = without_drafts(config_);
    alone.pipeline_parallel_size = 1;
    alone.threads = alone.tensor_parallel_size;
    LLMEngine engine(alone);
    expected = answers_of(engine, requests);
  }
  for (size_t i = 0; i < requests.size(); ++i) expect_matches(requests[i], expected[i]);
  RunTotals totals;
  for (int trial = 0; trial < (kSanitized ? 2 : 4); ++trial) {
    SCOPED_TRACE("trial " + std::to_string(trial));
    EngineConfig config = config_;
    config.async_scheduling = trial != 1;
    config.enforce_eager = trial == 2;
    if (trial % 2 == 1) {
      config.kv_cache_memory_bytes.reset();
      config.num_gpu_blocks_override = 18;
    }
    if (trial == 3) config.max_num_batched_tokens = 40;
    const int64_t num_steps = run(config, requests, expected, random, totals);
    if (trial == 0) {
      EXPECT_LT(num_steps, num_tokens_of(expected) * 2 / 3);
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_EQ(totals.num_accepted_drafts, 0);
  EXPECT_GT(totals.num_forced_tokens, 0);
}

TEST_P(ForcedTextOnGpus, IsTheSameBesideDrafters) {
  std::mt19937 random(52);
  const auto requests = random_forced_requests(random, kSanitized ? 5 : 8);
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(config_);
    expected = answers_of(engine, requests);
  }
  RunTotals totals;
  for (const std::string method : {"ngram", "suffix", "draft_model", "eagle3"}) {
    SCOPED_TRACE(method);
    const bool has_model = method == "draft_model" || method == "eagle3";
    if (has_model && GetParam().stages > 1) continue;  // not there
    EngineConfig config = config_;
    config.speculative_config = drafts_by(method, 4);
    if (has_model) {
      SpeculativeConfig& speculation = *config.speculative_config;
      speculation.prompt_lookup_min.reset();
      speculation.prompt_lookup_max.reset();
      speculation.model = config.model + (method == "eagle3" ? "-eagle3" : "");
    }
    for (const bool adaptive : {false, true}) {
      config.speculative_config->adaptive = adaptive;
      run(config, requests, expected, random, totals);
    }
  }
  EXPECT_GT(totals.num_accepted_drafts, 0);
  EXPECT_GT(totals.num_forced_tokens, 0);
}

// The first token of a run of seven and more is in flight while the others are drafted.
TEST_P(ForcedTextOnGpus, TakesFewSteps) {
  SamplingParams params{.temperature = 1, .max_tokens = 60, .seed = 1};
  params.structured_output = choice({"cats like to sleep in the sun, and zebras do remember it."});
  LLMEngine engine(config_);
  const RequestOutput output = answers_of(engine, {{.params = params}})[0];
  ASSERT_EQ(output.outputs[0].token_ids,
            engine.tokenizer().encode(params.structured_output->choices[0], false));
  const auto num_tokens = std::ssize(output.outputs[0].token_ids);
  EXPECT_GT(num_tokens, 12);
  EXPECT_LE(output.metrics.num_steps, 6);
}

// A step of many sequences waits for no forced text.
TEST_P(ForcedTextOnGpus, OfManySequencesIsNotDrafted) {
  SamplingParams params{.temperature = 1, .max_tokens = 60, .seed = 1};
  params.structured_output = choice({"cats like to sleep."});
  EngineConfig config = config_;
  config.kv_cache_memory_bytes = 64 << 20;  // all fit
  LLMEngine engine(config);
  const size_t num_requests = 65 * static_cast<size_t>(GetParam().stages);
  const std::vector<ConstrainedRequest> requests(num_requests, {.params = params});
  for (const RequestOutput& output : answers_of(engine, requests)) {
    EXPECT_EQ(output.metrics.num_forced_tokens, 0);
    EXPECT_EQ(output.outputs[0].token_ids,
              engine.tokenizer().encode(params.structured_output->choices[0], false));
  }
}

}  // namespace
}  // namespace quire
