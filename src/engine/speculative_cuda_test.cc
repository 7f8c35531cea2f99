// Drafts on GPUs, one and several: the tokens and log-probabilities of the same GPUs without them.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/constrained_requests.h"
#include "engine/speculative_gpu_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

SpeculativeConfig drafts_of(const std::string& method, int num_tokens) {
  SpeculativeConfig config = drafts_by(method, num_tokens);
  config.suffix_decoding_max_cached_requests = 5;
  return config;
}

class SpeculationOnGpus : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SpeculationOnGpus, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(SpeculationOnGpus, ChangesNoAnswer) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const bool with_logprobs : {false, true}) {
    std::mt19937 random(with_logprobs ? 41 : 42);
    const std::vector<RandomRequest> requests = requests_for_gpus(random, with_logprobs);
    EngineConfig config = tiny_on_gpus(GetParam());
    const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));
    RunTotals totals;
    int trial = 0;
    for (const char* method : {"ngram", "suffix"}) {
      for (const int num_tokens : {1, 2, 4, 8}) {
        config.speculative_config = drafts_of(method, num_tokens);
        expect_no_change(config, requests, expected, trial++, random, totals);
      }
    }
    EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
    EXPECT_GT(totals.prefix_cache_hits, 0) << "prompts were meant to share their beginnings";
    EXPECT_GT(totals.num_accepted_drafts, 0) << "the answers were meant to repeat themselves";
  }
}

// The same answers again and again, so that captured steps are replayed.
TEST_P(SpeculationOnGpus, ChangesNoAnswerInStepsThatAreReplayed) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::mt19937 random(43);
  const std::vector<RandomRequest> requests = requests_for_gpus(random, false);
  const std::vector<int> at_once(requests.size(), 0);
  EngineConfig config = tiny_on_gpus(GetParam());
  const auto expected = run(config, requests, at_once);
  for (const int num_tokens : {3, 16}) {
    config.speculative_config = drafts_of("ngram", num_tokens);
    LLMEngine engine(config);
    for (int round = 0; round < 3; ++round) {
      std::vector<RequestOutput> outputs(requests.size());
      for (size_t i = 0; i < requests.size(); ++i) {
        engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params,
                           {.output_kind = OutputKind::kFinalOnly});
      }
      while (!engine.is_finished()) {
        for (RequestOutput& output : engine.step()) {
          outputs[std::stoul(output.request_id)] = std::move(output);
        }
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        expect_same_outputs(outputs[i], expected[i],
                            "round " + std::to_string(round) + ", request " + std::to_string(i));
      }
    }
    EXPECT_GT(engine.stats().speculative.num_accepted_tokens, 0);
  }
}

TEST_P(SpeculationOnGpus, ChangesNoConstrainedAnswer) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  std::mt19937 random(44);
  std::vector<ConstrainedRequest> requests = random_constrained_requests(random, 8);
  for (size_t i = 0; i < requests.size(); ++i) {
    SamplingParams& params = requests[i].params;
    if (i % 3 == 0) params.logprobs.reset();
    if (i % 5 == 0) params.presence_penalty = 0.7;
    if (i % 2 == 0) params.max_tokens = 24;
  }
  EngineConfig config = lexicon_config();
  config.device = "cuda";
  config.dtype = "float32";
  config.tensor_parallel_size = GetParam();
  config.threads = GetParam();
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(config);
    expected = answers_of(engine, requests);
  }
  config.speculative_config = drafts_of("ngram", 4);
  LLMEngine engine(config);
  const auto outputs = answers_of(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_matches(requests[i], outputs[i]);
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(engine.stats().speculative.num_accepted_tokens, 0);
}

TEST_P(SpeculationOnGpus, CallbacksSeeTheTokensBefore) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  SamplingParams params;
  params.temperature = 0;
  params.max_tokens = 40;
  params.ignore_eos = true;
  params.logits_processors = {[](std::span<const int32_t> ids, std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), -100.0f);
    logits[ids.size() % 3] = 0.0f;
  }};
  EngineConfig config = tiny_on_gpus(GetParam());
  config.speculative_config = drafts_of("ngram", 4);
  const RequestOutput output = run(config, {{.prompt = {1, 2, 3}, .params = params}}, {0}).at(0);
  const std::vector<int32_t>& ids = output.outputs[0].token_ids;
  ASSERT_EQ(ids.size(), 40u);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<int32_t>((3 + i) % 3));
  EXPECT_GT(output.metrics.num_accepted_draft_tokens, 0);
  EXPECT_LT(output.metrics.num_steps, 40);
}

// Whatever the model samples.
TEST_P(SpeculationOnGpus, ASyntheticLengthIsTheMean) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const char* device : {"cpu", "cuda"}) {
    EngineConfig config = tiny_on_gpus(GetParam());
    config.device = device;
    config.speculative_config = drafts_of("ngram", 4);
    config.speculative_config->synthetic_acceptance_length = 3;
    LLMEngine engine(config);
    SamplingParams params;
    params.max_tokens = 140;
    params.ignore_eos = true;
    params.seed = 7;
    for (int i = 0; i < 12; ++i) {
      engine.add_request(std::to_string(i), std::vector<int32_t>{1, 2, 3 + i}, params,
                         {.output_kind = OutputKind::kFinalOnly});
    }
    while (!engine.is_finished()) engine.step();
    EXPECT_NEAR(engine.stats().speculative.mean_acceptance_length(), 3, 0.25) << device;
  }
}

}  // namespace
}  // namespace quire
