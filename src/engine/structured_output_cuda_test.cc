// Constrained answers on GPUs, which sample among the tokens that the host allows.
#include <gtest/gtest.h>

#include <random>
#include <span>
#include <vector>

#include "engine/constrained_requests.h"
#include "engine/gpu_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

TEST(StructuredOutputCuda, AnswersAreOfTheirConstraints) {
  for (const int ranks : {1, 2}) {
    if (num_gpus() < static_cast<size_t>(ranks)) GTEST_SKIP() << "there are fewer GPUs here";
    for (const bool async : {true, false}) {
      std::mt19937 random(20);
      const auto requests = random_constrained_requests(random, 4);
      EngineConfig config = lexicon_config();
      config.device = "cuda";
      config.tensor_parallel_size = ranks;
      config.threads = ranks;
      config.async_scheduling = async;
      LLMEngine engine(config);
      const auto outputs = answers_of(engine, requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        expect_matches(requests[i], outputs[i]);
        EXPECT_FALSE(outputs[i].outputs[0].token_ids.empty());
      }
    }
  }
}

// Constrained and free sequences are in one step, and the order in which they end does not matter.
TEST(StructuredOutputCuda, PreemptionAndAbortsLeaveTheOthersRight) {
  if (num_gpus() < 1) GTEST_SKIP() << "there is no GPU here";
  std::mt19937 random(21);
  const auto requests = random_constrained_requests(random, 5);
  EngineConfig config = lexicon_config();
  config.device = "cuda";
  config.kv_cache_memory_bytes.reset();
  config.max_model_len = 220;
  config.num_gpu_blocks_override = 14;
  LLMEngine engine(config);
  for (int i = 0; i < 3; ++i) {
    ConstrainedRequest aborted = requests[0];
    aborted.params.structured_output = regex("[a-z ]{100,}");
    aborted.params.max_tokens = 150;
    engine.add_request("aborted " + std::to_string(i), aborted.prompt, aborted.params,
                       {.output_kind = OutputKind::kFinalOnly});
  }
  for (int step = 0; step < 6; ++step) engine.step();
  for (int i = 0; i < 3; ++i) engine.abort("aborted " + std::to_string(i));
  while (!engine.is_finished()) engine.step();
  const auto outputs = answers_of(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) expect_matches(requests[i], outputs[i]);
}

// The same requests whose tokens the host samples: callbacks are called there. Beside callbacks the
// model chooses the tokens of text without a choice, so these answers may be others.
std::vector<ConstrainedRequest> sampled_on_host(std::vector<ConstrainedRequest> requests) {
  for (ConstrainedRequest& request : requests) {
    request.params.logits_processors = {[](std::span<const int32_t>, std::span<float>) {}};
  }
  return requests;
}

void expect_same(const RequestOutput& on_gpu, const RequestOutput& on_cpu) {
  ASSERT_EQ(on_gpu.outputs.size(), on_cpu.outputs.size());
  for (size_t i = 0; i < on_gpu.outputs.size(); ++i) {
    const CompletionOutput& answer = on_gpu.outputs[i];
    const CompletionOutput& expected = on_cpu.outputs[i];
    EXPECT_EQ(answer.token_ids, expected.token_ids) << answer.text << " | " << expected.text;
    EXPECT_EQ(answer.steered_to_end, expected.steered_to_end) << answer.text;
    EXPECT_EQ(answer.finish_reason, expected.finish_reason) << answer.text;
    ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
    for (size_t j = 0; j < answer.logprobs.size(); ++j) {
      ASSERT_EQ(answer.logprobs[j].size(), expected.logprobs[j].size());
      for (size_t k = 0; k < answer.logprobs[j].size(); ++k) {
        EXPECT_EQ(answer.logprobs[j][k].token_id, expected.logprobs[j][k].token_id);
        EXPECT_EQ(answer.logprobs[j][k].rank, expected.logprobs[j][k].rank);
        EXPECT_NEAR(answer.logprobs[j][k].logprob, expected.logprobs[j][k].logprob, 1e-4);
      }
    }
  }
}

// Limits are short, so that many answers are steered to their ends; penalties, biases and
// min_tokens change the logits of some; others want log-probabilities, or are free.
TEST(StructuredOutputCuda, TokensAreThoseOfTheCpu) {
  std::mt19937 random(22);
  for (const int ranks : {1, 2}) {
    if (num_gpus() < static_cast<size_t>(ranks)) GTEST_SKIP() << "there are fewer GPUs here";
    std::vector<ConstrainedRequest> requests = random_constrained_requests(random, 9);
    for (size_t i = 0; i < requests.size(); ++i) {
      SamplingParams& params = requests[i].params;
      if (i % 3 == 0) params.logprobs.reset();
      if (i % 4 == 0) params.logit_bias = {{5, 3.0f}, {60, -4.0f}};
      if (i % 5 == 0) params.presence_penalty = 0.7;
      if (i % 2 == 0) params.max_tokens = 24;
    }
    EngineConfig config = lexicon_config();
    config.device = "cuda";
    config.dtype = "float32";  // lower types round otherwise on each device
    config.tensor_parallel_size = ranks;
    config.threads = 2 * ranks;
    std::vector<RequestOutput> on_gpu;
    std::vector<RequestOutput> on_host;
    std::vector<RequestOutput> on_cpu;
    {
      LLMEngine engine(config);
      on_gpu = answers_of(engine, requests);
    }
    {
      LLMEngine engine(config);
      on_host = answers_of(engine, sampled_on_host(requests));
    }
    {
      EngineConfig cpu = config;
      cpu.device = "cpu";
      LLMEngine engine(cpu);
      on_cpu = answers_of(engine, requests);
    }
    bool is_one_steered = false;
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i) + ", ranks " + std::to_string(ranks));
      expect_matches(requests[i], on_gpu[i]);
      expect_matches(requests[i], on_host[i]);
      expect_same(on_gpu[i], on_cpu[i]);
      for (const auto& answer : on_gpu[i].outputs) is_one_steered |= answer.steered_to_end;
    }
    EXPECT_TRUE(is_one_steered);
  }
}

// Steps are in flight whose masks nobody will be told of.
TEST(StructuredOutputCuda, EnginesStopInTheMiddle) {
  if (num_gpus() < 1) GTEST_SKIP() << "there is no GPU here";
  for (int steps = 0; steps < 6; ++steps) {
    std::mt19937 random(23);
    EngineConfig config = lexicon_config();
    config.device = "cuda";
    LLMEngine engine(config);
    for (const ConstrainedRequest& request : random_constrained_requests(random, 6)) {
      engine.add_request(std::to_string(random()), request.prompt, request.params, {});
    }
    for (int step = 0; step < steps; ++step) engine.step();
  }
}

}  // namespace
}  // namespace quire
