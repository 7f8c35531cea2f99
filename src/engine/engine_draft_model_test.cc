// Drafts of a smaller model: the same answers as without, and all drafts kept where the two models
// are one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/speculative_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(EngineDraftModel, DraftsChangeNoAnswer) {
  uint32_t seed = 41;
  for (const int num_tokens : draft_lengths()) {
    expect_same_answers(draft_model("qwen2-tied", num_tokens), "qwen3-tied", seed++);
  }
  expect_same_answers(draft_model("qwen3-bf16", 3), "qwen3-bf16", seed++);
  expect_same_answers(draft_model("mistral-sliding", 5), "mistral-bf16", seed++);
}

TEST(EngineDraftModel, DraftsThatEndWhereTheyCostTooMuchChangeNoAnswer) {
  SpeculativeConfig adaptive = draft_model("qwen3-tied", 4);
  adaptive.adaptive = true;
  expect_same_answers(adaptive, "qwen3-tied", 51);
}

TEST(EngineDraftModel, RanksShareItAndChangeNoAnswer) {
  std::mt19937 random(61);
  EngineConfig config = base_config("qwen3-tied");
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const std::vector<RandomRequest> requests =
      repetitive_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  config.speculative_config = draft_model("qwen3-bf16", 3);
  config.max_num_batched_tokens = 50;
  RunTotals totals;
  const auto outputs = run(config, requests, arrivals, &totals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(totals.num_accepted_drafts, 0);
}

// Requests without callbacks, which a draft model does not ask, that end by their length.
std::vector<RandomRequest> full_length_requests(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<RandomRequest> requests = random_requests(random, 128);
  for (RandomRequest& request : requests) {
    request.params.ignore_eos = true;
    request.params.presence_penalty = 0.4;
    request.params.min_tokens = 1;
    request.params.logit_bias = {{9, 2.0f}};
  }
  return requests;
}

void expect_all_kept(const EngineConfig& config, const std::vector<RandomRequest>& requests,
                     int max_arrival) {
  LLMEngine engine(config);
  std::mt19937 random(3);
  std::vector<int> arrivals;
  for (size_t i = 0; i < requests.size(); ++i) {
    arrivals.push_back(std::uniform_int_distribution<int>(0, max_arrival)(random));
  }
  size_t added = 0;
  for (int step = 0; added < requests.size() || !engine.is_finished(); ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (arrivals[i] != step) continue;
      engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params);
      ++added;
    }
    engine.step();
  }
  const SpeculativeStats stats = engine.stats().speculative;
  EXPECT_GT(stats.num_draft_tokens, 0);
  EXPECT_EQ(stats.num_accepted_tokens, stats.num_draft_tokens);
}

TEST(EngineDraftModel, OneThatIsTheModelItselfIsAlwaysRight) {
  for (const int num_tokens : {1, 3, 8}) {
    EngineConfig config = base_config("qwen3-tied");
    config.speculative_config = draft_model("qwen3-tied", num_tokens);
    expect_all_kept(config, full_length_requests(71), 0);
    // Prompts in chunks, from the prefix cache, and computed anew.
    config.max_num_batched_tokens = 23;
    config.num_gpu_blocks_override = 11;
    expect_all_kept(config, full_length_requests(72), 30);
  }
}

// The prompts of these are read by the model while the draft model does not run.
TEST(EngineDraftModel, ItCatchesUpOnWhatItHasNotRead) {
  EngineConfig config = base_config("qwen3-tied");
  config.speculative_config = draft_model("qwen3-tied", 2);
  config.max_num_batched_tokens = 5;  // less than it has to read at once
  expect_all_kept(config, full_length_requests(73), 10);
}

TEST(EngineDraftModel, DummyWeightsOfTheSameSizesAreTheSame) {
  EngineConfig config = base_config("qwen3-tied");
  config.load_format = LoadFormat::kDummy;
  config.speculative_config = draft_model("qwen3-tied", 4);
  expect_all_kept(config, full_length_requests(74), 0);
}

TEST(EngineDraftModel, ItsWeightsMayBeRounded) {
  EngineConfig config = base_config("qwen3-tied");
  SpeculativeConfig speculation = draft_model("qwen3-tied", 3);
  speculation.quantization = "int8";
  expect_same_answers(speculation, "qwen3-tied", 81);
}

TEST(EngineDraftModel, QuantisedCheckpointsDraftForEachOther) {
  expect_same_answers(draft_model("../quantised/awq", 3), "../quantised/gptq-4bit", 82);
}

TEST(EngineDraftModel, AbortedRequestsLeaveTheOthersTheirAnswers) {
  const std::vector<RandomRequest> requests = full_length_requests(75);
  EngineConfig config = base_config("qwen3-tied");
  const RequestOutput plain = run(config, {requests[1]}, {0}).at(0);
  config.speculative_config = draft_model("qwen2-tied", 4);
  LLMEngine engine(config);
  engine.add_request("a", requests[0].prompt, requests[0].params);
  engine.add_request("b", requests[1].prompt, requests[1].params);
  RequestOutput last;
  for (int step = 0; !engine.is_finished(); ++step) {
    if (step == 3) engine.abort("a");
    for (RequestOutput& output : engine.step()) {
      if (output.request_id == "b") last = std::move(output);
    }
  }
  EXPECT_EQ(last.outputs.at(0).token_ids, plain.outputs.at(0).token_ids);
}

TEST(EngineDraftModel, APlanCountsIt) {
  EngineConfig config = base_config("qwen3-tied");
  config.num_gpu_blocks_override = 20;
  const MemoryPlan without = plan(config);
  config.speculative_config = draft_model("qwen2-tied", 4);
  const MemoryPlan with = plan(config);
  EXPECT_GT(with.bytes_per_block, without.bytes_per_block);
  const auto weights = std::ranges::find(with.buffers, "draft model", &PlannedBuffer::name);
  ASSERT_NE(weights, with.buffers.end());
  EXPECT_GT(weights->bytes, 0);
  EXPECT_GT(with.total_bytes, without.total_bytes + weights->bytes);
}

TEST(EngineDraftModel, OnesThatDoNotFitAreRefused) {
  EngineConfig config = base_config("qwen3-tied");
  config.speculative_config = draft_model("llama3", 4);
  EXPECT_THAT(refusal(config), AllOf(StartsWith("--speculative-config: the draft model "),
                                     HasSubstr("its vocabulary has 131 tokens, and that of the "
                                               "model 128; expected the same.")));
  config.speculative_config = draft_model("no-such-model", 4);
  EXPECT_THAT(refusal(config), AllOf(StartsWith("--speculative-config: the draft model "),
                                     HasSubstr("no-such-model")));
  config.speculative_config = draft_model("qwen2-tied", 4);
  config.speculative_config->draft_tensor_parallel_size = 2;
  EXPECT_EQ(refusal(config),
            "--speculative-config: draft_tensor_parallel_size is 2; expected 1, as "
            "--tensor-parallel-size says, or none.");
  config = base_config("llama3");
  config.max_model_len = 300;
  config.speculative_config = draft_model("llama-fp16", 4);
  EXPECT_THAT(refusal(config), HasSubstr("it supports 256 tokens, and --max-model-len is 300; "
                                         "expected a --max-model-len of at most that."));
}

}  // namespace
}  // namespace quire
