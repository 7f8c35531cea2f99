// Drafts of a model or a head in stages: the answers are those of one stage without drafts, bit for
// bit, and the drafts are those that are made in one stage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/sanitized_test_util.h"
#include "engine/constrained_requests.h"
#include "engine/speculative_test_util.h"
#include "engine/stages_test_util.h"
#include "quire/plan.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

EngineConfig two_ranks(EngineConfig config) {
  config.tensor_parallel_size = 2;
  config.threads = 2;
  return config;
}

std::vector<int> draft_lengths_of_stages() {
  if (kSanitized) return {1, 4};
  return {1, 2, 3, 4, 5, 6, 7, 8};
}

TEST(EngineStageDrafters, AModelsDraftsChangeNoAnswerInTwoStages) {
  uint32_t seed = 201;
  for (const int num_tokens : draft_lengths_of_stages()) {
    expect_same_answers(draft_model("qwen2-tied", num_tokens), base_config("qwen3-tied"), seed++,
                        2);
  }
  expect_same_answers(draft_model("qwen3-tied", 4), two_ranks(base_config("qwen3-tied")), seed++,
                      2);
}

TEST(EngineStageDrafters, AModelsDraftsChangeNoAnswerInFourStages) {
  const DeepModel model(5);
  expect_same_answers(draft_model("qwen3-tied", 5), model.config(), 211, 4);
}

TEST(EngineStageDrafters, AHeadsDraftsChangeNoAnswerInTwoStages) {
  uint32_t seed = 221;
  for (const int num_tokens : draft_lengths_of_stages()) {
    expect_same_answers(eagle("speculators", num_tokens), base_config("qwen3-bias-sharded"), seed++,
                        2);
  }
  expect_same_answers(eagle("midlayer", 3), two_ranks(base_config("llama3")), seed++, 2);
  expect_same_answers(eagle("shared", 5), base_config("qwen3-tied"), seed++, 2);
}

TEST(EngineStageDrafters, AHeadsDraftsChangeNoAnswerInThreeStages) {
  expect_same_answers(eagle("speculators", 3), base_config("qwen3-bias-sharded"), 231, 3);
}

TEST(EngineStageDrafters, AHeadsDraftsChangeNoAnswerInFourStages) {
  const DeepModel model(8);
  const DeepHead head({2, 4, 5});
  for (const int num_tokens : draft_lengths_of_stages()) {
    expect_same_answers(head.drafts(num_tokens), model.config(),
                        240 + static_cast<uint32_t>(num_tokens), 4);
  }
}

TEST(EngineStageDrafters, DraftsOfTheFirstKindChangeNoAnswer) {
  expect_same_answers(first_eagle(1), base_config("llama3"), 251, 2);
  expect_same_answers(first_eagle(8), base_config("llama3"), 252, 2);
  expect_same_answers(first_eagle(4), two_ranks(base_config("llama3")), 253, 2);
  const DeepModel model(5);
  const DeepHead head({});
  expect_same_answers(head.drafts(3), model.config(), 254, 4);
}

TEST(EngineStageDrafters, DraftsThatEndWhereTheyCostTooMuchChangeNoAnswer) {
  SpeculativeConfig adaptive = draft_model("qwen3-tied", 4);
  adaptive.adaptive = true;
  expect_same_answers(adaptive, base_config("qwen3-tied"), 261, 2);
  adaptive = eagle("midlayer", 4);
  adaptive.adaptive = true;
  expect_same_answers(adaptive, base_config("llama3"), 262, 2);
}

// Drafts are made on another rank than the one that samples, and ask for the same masks.
TEST(EngineStageDrafters, ConstrainedAnswersStayAsTheyAre) {
  std::mt19937 random(21);
  const auto requests = random_constrained_requests(random, kSanitized ? 3 : 8);
  EngineConfig config = lexicon_config();
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(config);
    expected = answers_of(engine, requests);
  }
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  const std::string lexicon = config.model;
  for (const char* const method : {"draft_model", "eagle3"}) {
    const bool is_head = std::string(method) == "eagle3";
    config.speculative_config = drafter(method, is_head ? lexicon + "-eagle3" : lexicon, 4);
    LLMEngine engine(config);
    const auto outputs = answers_of(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_matches(requests[i], outputs[i]);
      expect_equal(outputs[i], expected[i], std::string(method) + ", request " + std::to_string(i));
    }
    EXPECT_GT(engine.stats().speculative.num_accepted_tokens, 0) << method;
  }
}

// Whatever the steps were: what is known of a token came to the drafter from every stage.
void expect_drafts_of_one_stage(EngineConfig config, const SpeculativeConfig& speculation,
                                int stages) {
  SCOPED_TRACE(speculation.model + " in " + std::to_string(stages) + " stages");
  const std::vector<RandomRequest> requests = greedy_requests();
  config.speculative_config = speculation;
  config.enable_prefix_caching = false;
  config.max_num_seqs = 1;
  // A step in flight would have the token that follows the prompt, and no drafts.
  config.async_scheduling = false;
  const DraftCounts expected = counts_of(config, requests);
  EXPECT_GT(expected.made, 0);
  config.pipeline_parallel_size = stages;
  config.threads *= stages;
  for (const int max_tokens : {5, 7, 100}) {
    config.max_num_batched_tokens = max_tokens;
    const DraftCounts counts = counts_of(config, requests);
    EXPECT_EQ(counts.made, expected.made) << max_tokens << " tokens a step";
    EXPECT_EQ(counts.kept, expected.kept) << max_tokens << " tokens a step";
  }
  // The second finds the first's prompt in the prefix cache.
  config.enable_prefix_caching = true;
  const DraftCounts shared = counts_of(config, requests);
  EXPECT_EQ(shared.made, expected.made);
  EXPECT_EQ(shared.kept, expected.kept);
}

TEST(EngineStageDrafters, DraftWhatTheyDraftInOneStage) {
  expect_drafts_of_one_stage(base_config("qwen3-tied"), draft_model("qwen3-tied", 3), 2);
  expect_drafts_of_one_stage(base_config("qwen3-bias-sharded"), eagle("speculators", 3), 2);
  expect_drafts_of_one_stage(base_config("qwen3-bias-sharded"), eagle("speculators", 3), 3);
  expect_drafts_of_one_stage(base_config("qwen3-tied"), eagle("shared", 4), 2);
  expect_drafts_of_one_stage(base_config("llama3"), first_eagle(3), 2);
}

// A model that drafts for itself is always right, in stages, too.
TEST(EngineStageDrafters, AllDraftsOfTheModelItselfAreKept) {
  std::vector<RandomRequest> requests = greedy_requests();
  requests[1].params.temperature = 1.0;
  requests[2].params.temperature = 0.7;
  requests[2].params.presence_penalty = 0.5;
  EngineConfig config = base_config("qwen3-tied");
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  config.speculative_config = draft_model("qwen3-tied", 4);
  const DraftCounts counts = counts_of(config, requests);
  EXPECT_GT(counts.made, 0);
  EXPECT_EQ(counts.kept, counts.made);
}

int64_t planned_bytes(const MemoryPlan& memory, const std::string& name) {
  const auto buffer = std::ranges::find(memory.buffers, name, &PlannedBuffer::name);
  return buffer == memory.buffers.end() ? 0 : buffer->bytes;
}

TEST(EngineStageDrafters, APlanCountsThemOnTheFirstStage) {
  EngineConfig config = base_config("llama3");
  config.num_gpu_blocks_override = 20;
  config.pipeline_parallel_size = 2;
  config.pipeline_layers = {1, 1};
  config.threads = 2;
  const MemoryPlan without = plan(config);
  for (const SpeculativeConfig& speculation :
       {draft_model("llama3", 3), eagle("midlayer", 3), first_eagle(3)}) {
    SCOPED_TRACE(speculation.method);
    config.speculative_config = speculation;
    const MemoryPlan with = plan(config);
    const int64_t tables =
        planned_bytes(with, "output layer") - planned_bytes(without, "output layer");
    // The first kind of head takes the model's output layer, which is on the last stage.
    EXPECT_EQ(tables, speculation.method == "eagle" ? planned_bytes(without, "output layer") : 0);
    EXPECT_EQ(with.stages[0].weight_bytes,
              without.stages[0].weight_bytes + planned_bytes(with, "draft model") + tables);
    EXPECT_EQ(with.stages[1].weight_bytes, without.stages[1].weight_bytes);
    EXPECT_GT(with.stages[0].kv_bytes, without.stages[0].kv_bytes);
    EXPECT_EQ(with.stages[1].kv_bytes, without.stages[1].kv_bytes);
    EXPECT_EQ(with.stages[0].kv_bytes + with.stages[1].kv_bytes, planned_bytes(with, "kv cache"));
    EXPECT_EQ(with.bytes_per_block * with.num_blocks, planned_bytes(with, "kv cache"));
  }
}

TEST(EngineStageDrafters, ArePlannedOnTheFirstOfGpusThatAreNotThere) {
  const DeepModel model(8);
  const DeepHead head({2, 4, 5});
  EngineConfig config = model.config();
  config.device = "cuda";
  config.threads = 4;
  config.pipeline_parallel_size = 4;
  config.pipeline_layers = {2, 2, 2, 2};
  config.max_num_seqs = 64;
  config.num_gpu_blocks_override = 100;
  constexpr int64_t kMemory = int64_t{4} << 30;
  const MemoryPlan without = plan_for_gpus(config, kMemory);
  config.speculative_config = head.drafts(4);
  const MemoryPlan with = plan_for_gpus(config, kMemory);
  ASSERT_EQ(with.stages.size(), 4u);
  EXPECT_EQ(with.stages[0].weight_bytes - without.stages[0].weight_bytes,
            planned_bytes(with, "draft model"));
  EXPECT_GT(with.stages[0].kv_bytes, without.stages[0].kv_bytes);
  for (size_t stage = 1; stage < 4; ++stage) {
    EXPECT_EQ(with.stages[stage].weight_bytes, without.stages[stage].weight_bytes);
    EXPECT_EQ(with.stages[stage].kv_bytes, without.stages[stage].kv_bytes);
  }
}

// It has fewer layers beside a drafter, whose passes take its time.
TEST(EngineStageDrafters, LeaveTheFirstStageFewerLayers) {
  const DeepModel model(8);
  EngineConfig config = model.config();
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  const int64_t without = plan(config).stages[0].num_layers;
  const DeepHead head({2, 4, 5});
  config.speculative_config = head.drafts(4);
  EXPECT_LT(plan(config).stages[0].num_layers, without);
  config.pipeline_layers = {6, 2};
  EXPECT_EQ(plan(config).stages[0].num_layers, 6);
}

TEST(EngineStageDrafters, HaveTheRanksOfAStage) {
  EngineConfig config = base_config("qwen3-tied");
  config.pipeline_parallel_size = 2;
  config.threads = 2;
  config.speculative_config = draft_model("qwen3-tied", 3);
  config.speculative_config->draft_tensor_parallel_size = 2;
  EXPECT_EQ(refusal(config),
            "--speculative-config: draft_tensor_parallel_size is 2; expected 1, as "
            "--tensor-parallel-size says, or none.");
}

}  // namespace
}  // namespace quire
