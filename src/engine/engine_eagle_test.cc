// Drafts of an EAGLE or EAGLE-3 head: the same answers as without, whatever the head says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/speculative_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

TEST(EngineEagle, DraftsChangeNoAnswer) {
  uint32_t seed = 141;
  for (const int num_tokens : draft_lengths()) {
    expect_same_answers(eagle("speculators", num_tokens), "qwen3-bias-sharded", seed++);
  }
  expect_same_answers(eagle("midlayer", 3), "llama3", seed++);
  expect_same_answers(eagle("shared", 5), "qwen3-tied", seed++);
}

TEST(EngineEagle, DraftsOfTheFirstKindChangeNoAnswer) {
  for (const int num_tokens : draft_lengths()) {
    expect_same_answers(first_eagle(num_tokens), "llama3", 180 + static_cast<uint32_t>(num_tokens));
  }
  EngineConfig two_ranks = base_config("llama3");
  two_ranks.tensor_parallel_size = 2;
  two_ranks.threads = 2;
  expect_same_answers(first_eagle(4), two_ranks, 185, 1);
}

TEST(EngineEagle, DraftsThatEndWhereTheyCostTooMuchChangeNoAnswer) {
  SpeculativeConfig adaptive = eagle("midlayer", 4);
  adaptive.adaptive = true;
  expect_same_answers(adaptive, "llama3", 151);
}

TEST(EngineEagle, ItsWeightsMayBeRounded) {
  SpeculativeConfig speculation = eagle("shared", 3);
  speculation.quantization = "int8";
  expect_same_answers(speculation, "qwen3-tied", 152);
}

TEST(EngineEagle, RanksShareItAndChangeNoAnswer) {
  std::mt19937 random(161);
  EngineConfig config = base_config("qwen3-bias-sharded");
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const std::vector<RandomRequest> requests =
      repetitive_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  config.speculative_config = eagle("speculators", 3);
  config.max_num_batched_tokens = 50;
  RunTotals totals;
  const auto outputs = run(config, requests, arrivals, &totals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(totals.num_accepted_drafts, 0);
}

// However the head came to read what it reads, it says the same: drafts that are kept are as many.
TEST(EngineEagle, SchedulesDoNotChangeWhatIsKept) {
  const std::vector<RandomRequest> requests = greedy_requests();
  EngineConfig config = base_config("qwen3-bias-sharded");
  config.enable_prefix_caching = false;
  config.speculative_config = eagle("speculators", 3);
  const DraftCounts expected = counts_of(config, {requests[0]});
  EXPECT_GT(expected.made, 0);
  for (const int max_tokens : {4, 7, 100}) {
    config.max_num_batched_tokens = max_tokens;
    const DraftCounts counts = counts_of(config, {requests[0]});
    EXPECT_EQ(counts.made, expected.made) << max_tokens;
    EXPECT_EQ(counts.kept, expected.kept) << max_tokens;
  }
  // The second finds the first's prompt in the prefix cache.
  config.enable_prefix_caching = true;
  config.max_num_batched_tokens = 200;
  config.max_num_seqs = 1;
  const DraftCounts twice = counts_of(config, {requests[0], requests[1]});
  EXPECT_EQ(twice.made, 2 * expected.made);
  EXPECT_EQ(twice.kept, 2 * expected.kept);
}

// The bundled model's head, on the golden questions of the bundled model.
TEST(EngineEagle, TheBundledHeadIsOftenRight) {
  const fs::path models = fs::path(QUIRE_SOURCE_DIR) / "models";
  const auto golden = nlohmann::json::parse(
      std::ifstream(golden_models().parent_path() / "lexicon" / "prompts.json"));
  EngineConfig config;
  config.model = (models / "lexicon").string();
  config.dtype = "float32";
  config.skip_tokenizer_init = true;
  config.max_model_len = 512;
  config.speculative_config = drafter("eagle3", models / "lexicon-eagle3", 4);
  LLMEngine engine(config);
  constexpr size_t kStep = kSanitized ? 50 : 10;
  size_t num_answers = 0;
  for (size_t i = 0; i < golden.size(); i += kStep) {
    SamplingParams params;
    params.temperature = 0;
    params.max_tokens = 64;
    engine.add_request(std::to_string(i), golden[i]["prompt_ids"].get<std::vector<int32_t>>(),
                       params);
  }
  while (!engine.is_finished()) {
    for (const RequestOutput& output : engine.step()) {
      if (!output.finished) continue;
      ++num_answers;
      EXPECT_EQ(output.outputs.at(0).token_ids,
                golden[std::stoul(output.request_id)]["output_ids"].get<std::vector<int32_t>>());
    }
  }
  EXPECT_EQ(num_answers, golden.size() / kStep);
  const SpeculativeStats stats = engine.stats().speculative;
  EXPECT_GE(
      1 + static_cast<double>(stats.num_accepted_tokens) / static_cast<double>(stats.num_drafts),
      2.5);
}

TEST(EngineEagle, APlanCountsIt) {
  EngineConfig config = base_config("llama3");
  config.num_gpu_blocks_override = 20;
  const MemoryPlan without = plan(config);
  config.speculative_config = eagle("midlayer", 4);
  const MemoryPlan with = plan(config);
  EXPECT_GT(with.bytes_per_block, without.bytes_per_block + 16 * 32 * 4);
  const auto weights = std::ranges::find(with.buffers, "draft model", &PlannedBuffer::name);
  ASSERT_NE(weights, with.buffers.end());
  EXPECT_GT(weights->bytes, 0);
}

TEST(EngineEagle, ADummyHeadNeedsItsConfigOnly) {
  const TemporaryFolder folder;
  fs::copy(golden_head("midlayer") / "config.json", folder.path() / "config.json");
  EngineConfig config = base_config("llama3");
  config.speculative_config = drafter("eagle3", folder.path(), 3);
  EXPECT_THAT(refusal(config), HasSubstr("safetensors"));
  config.load_format = LoadFormat::kDummy;
  EXPECT_GT(counts_of(config, greedy_requests()).made, 0);
  fs::copy(golden_head("eagle") / "config.json", folder.path() / "config.json",
           fs::copy_options::overwrite_existing);
  config.speculative_config->method = "eagle";
  EXPECT_GT(counts_of(config, greedy_requests()).made, 0);
}

// What is said of a golden head with other fields in its config.json.
std::string refusal_with(const nlohmann::json& fields, const std::string& target = "llama3",
                         const std::string& head = "midlayer",
                         const std::string& method = "eagle3") {
  const TemporaryFolder folder;
  fs::copy(golden_head(head) / "model.safetensors", folder.path() / "model.safetensors");
  auto json = nlohmann::json::parse(std::ifstream(golden_head(head) / "config.json"));
  if (!fields.is_null()) json.merge_patch(fields);
  std::ofstream(folder.path() / "config.json") << json.dump();
  EngineConfig config = base_config(target);
  config.speculative_config = drafter(method, folder.path(), 4);
  return refusal(config);
}

TEST(EngineEagle, HeadsThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal_with({}), "taken");
  EXPECT_THAT(refusal_with({}, "qwen3-tied"),
              AllOf(StartsWith("--speculative-config: the EAGLE-3 head "),
                    HasSubstr("vocab_size is 131, and that of the model 128; expected the same")));
  EXPECT_THAT(refusal_with({{"target_hidden_size", 64}}),
              HasSubstr("target_hidden_size is 64, and hidden_size of the model 32"));
  EXPECT_THAT(refusal_with({{"eagle_aux_hidden_state_layer_ids", {0, 2}}}),
              HasSubstr("eagle_aux_hidden_state_layer_ids"));
  EXPECT_THAT(refusal_with({{"eagle_aux_hidden_state_layer_ids", {1, 1}}}),
              HasSubstr("expected 1 to 8 that differ"));
  EXPECT_THAT(refusal_with({{"eagle_aux_hidden_state_layer_ids", nullptr}}),
              HasSubstr("is missing, and the model has 2 layers"));
  EXPECT_THAT(refusal_with({{"architectures", {"LlamaForCausalLM"}}}),
              HasSubstr("names no EAGLE-3 head"));
  EXPECT_THAT(refusal_with({{"draft_vocab_size", 50}}),
              HasSubstr("the tensor d2t is [40] I64; expected [50] I64 or I32"));
  EXPECT_THAT(refusal_with({{"draft_vocab_size", 40}}, "qwen3-tied", "shared"),
              HasSubstr("the checkpoint has no tensor d2t, and draft_vocab_size is 40"));
  EXPECT_THAT(refusal_with({{"speculators_model_type", "eagle"}}), HasSubstr("\"eagle3\""));
  EXPECT_THAT(refusal_with({{"model_type", "gpt2"}}), HasSubstr("\"llama\" or \"qwen3\""));
  EXPECT_THAT(refusal_with({{"fc_norm", true}}), HasSubstr("fc_norm"));
  EXPECT_THAT(refusal_with({{"intermediate_size", 56}}), HasSubstr("mlp"));
  const auto refusal_of_eagle = [](const nlohmann::json& fields) {
    return refusal_with(fields, "llama3", "eagle", "eagle");
  };
  EXPECT_EQ(refusal_of_eagle({}), "taken");
  for (const char* name : {"LlamaForCausalLMEagle", "EagleLlamaForCausalLM", "EAGLEModel"}) {
    EXPECT_EQ(refusal_of_eagle({{"architectures", {name}}}), "taken") << name;
  }
  for (const char* name :
       {"LlamaForCausalLMEagle3", "Eagle3Qwen3ForCausalLM", "LlamaForCausalLMEAGLE3"}) {
    EXPECT_EQ(refusal_with({{"architectures", {name}}}), "taken") << name;
    EXPECT_THAT(refusal_of_eagle({{"architectures", {name}}}), HasSubstr("names no EAGLE head"));
  }
  EXPECT_THAT(refusal_with({}, "llama3", "midlayer", "eagle"),
              AllOf(StartsWith("--speculative-config: the EAGLE head "),
                    HasSubstr("names no EAGLE head"), HasSubstr("\"eagle3\" takes EAGLE-3")));
  EXPECT_THAT(refusal_of_eagle({{"speculators_model_type", "eagle"}}),
              HasSubstr("names no EAGLE head"));
  EXPECT_THAT(refusal_of_eagle({{"hidden_size", 48}, {"target_hidden_size", 32}}),
              HasSubstr("hidden_size is 48; expected the model's, 32, in an EAGLE head"));
  EXPECT_THAT(refusal_of_eagle({{"draft_vocab_size", 40}}),
              HasSubstr("draft_vocab_size is 40; expected vocab_size, 131, in an EAGLE head"));
  EngineConfig config = base_config("llama3");
  config.speculative_config = eagle("no-such-head", 4);
  EXPECT_THAT(refusal(config), AllOf(StartsWith("--speculative-config: the EAGLE-3 head "),
                                     HasSubstr("no-such-head")));
  config.speculative_config = eagle("midlayer", 0);
  EXPECT_THAT(refusal(config), HasSubstr("num_speculative_tokens is 0; expected 1 to 16"));
  config.speculative_config = eagle("midlayer", 100);
  EXPECT_THAT(refusal(config), HasSubstr("num_speculative_tokens is 100; expected 1 to 16"));
}

}  // namespace
}  // namespace quire
