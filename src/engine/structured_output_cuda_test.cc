// Constrained answers on GPUs, where rows with a constraint are sampled on the host.
#include <gtest/gtest.h>

#include <random>

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

}  // namespace
}  // namespace quire
