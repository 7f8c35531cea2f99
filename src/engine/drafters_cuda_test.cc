// Draft models and EAGLE-3 heads on GPUs, one and several, also in stages: the answers of the same
// ranks in one stage without drafts, as many drafts kept as on the CPU, and all where the two
// models are one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/constrained_requests.h"
#include "engine/damaged_model.h"
#include "engine/nodes_test_util.h"
#include "engine/speculative_gpu_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

EngineConfig tiny_on(const Division& division) {
  EngineConfig config = tiny_on_gpus(division.ranks);
  config.pipeline_parallel_size = division.stages;
  config.threads = division.ranks * division.stages;
  return config;
}

EngineConfig model_on(const std::string& model, const Division& division) {
  EngineConfig config = tiny_on(division);
  config.model = base_config(model).model;
  return config;
}

// Simulated GPUs take their time, several of them and sanitizers more: they get fewer numbers of
// drafts.
std::vector<int> draft_lengths(const Division& division) {
  if (kSanitized) return {4};
  return division.ranks * division.stages > 1 ? std::vector{1, 4}
                                              : std::vector{1, 2, 3, 4, 5, 6, 8};
}

class DraftersOnGpus : public testing::TestWithParam<Division> {
 protected:
  void SetUp() override {
    QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam().ranks * GetParam().stages));
  }
};
INSTANTIATE_TEST_SUITE_P(Divisions, DraftersOnGpus,
                         testing::Values(Division{1, 1}, Division{2, 1}, Division{1, 2},
                                         Division{2, 2}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "x" +
                                  std::to_string(test.param.stages);
                         });

// Compares answers under random schedules with those without drafts.
void expect_no_change_by(const std::vector<SpeculativeConfig>& drafters, EngineConfig config,
                         uint32_t seed) {
  for (const bool with_logprobs : {false, true}) {
    std::mt19937 random(seed);
    const std::vector<RandomRequest> requests = requests_for_gpus(random, with_logprobs);
    EngineConfig plain = config;
    plain.pipeline_parallel_size = 1;
    plain.threads = plain.tensor_parallel_size;
    const auto expected = run(plain, requests, std::vector<int>(requests.size(), 0));
    RunTotals totals;
    int trial = with_logprobs ? 1 : 0;
    for (const SpeculativeConfig& speculation : drafters) {
      config.speculative_config = speculation;
      expect_no_change(config, requests, expected, trial++, random, totals);
    }
    EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
    EXPECT_GT(totals.prefix_cache_hits, 0) << "prompts were meant to share their beginnings";
    EXPECT_GT(totals.num_accepted_drafts, 0) << "some drafts were meant to be kept";
  }
}

TEST_P(DraftersOnGpus, ADraftModelChangesNoAnswer) {
  std::vector<SpeculativeConfig> drafters;
  for (const int num_tokens : draft_lengths(GetParam())) {
    drafters.push_back(draft_model("qwen2-tied", num_tokens));
  }
  if (GetParam().ranks * GetParam().stages == 1) drafters.push_back(draft_model("qwen3-tied", 3));
  drafters.push_back(draft_model("qwen3-tied", 16));
  drafters.back().adaptive = true;
  expect_no_change_by(drafters, model_on("qwen3-tied", GetParam()), 241);
}

TEST_P(DraftersOnGpus, AHeadChangesNoAnswer) {
  std::vector<SpeculativeConfig> drafters;
  for (const int num_tokens : draft_lengths(GetParam())) {
    drafters.push_back(eagle("speculators", num_tokens));
  }
  drafters.push_back(eagle("speculators", 16));
  drafters.back().adaptive = true;
  expect_no_change_by(drafters, model_on("qwen3-bias-sharded", GetParam()), 341);
}

TEST_P(DraftersOnGpus, AHeadOfTheFirstKindChangesNoAnswer) {
  std::vector<SpeculativeConfig> drafters;
  for (const int num_tokens : draft_lengths(GetParam())) {
    drafters.push_back(first_eagle(num_tokens));
  }
  expect_no_change_by(drafters, model_on("llama3", GetParam()), 342);
}

TEST_P(DraftersOnGpus, HeadsWithTheModelsTablesChangeNoAnswer) {
  expect_no_change_by({eagle("midlayer", 3)}, model_on("llama3", GetParam()), 342);
  expect_no_change_by({eagle("shared", 5)}, model_on("qwen3-tied", GetParam()), 343);
}

// Requests that a drafter samples as the model does, of full length.
std::vector<RandomRequest> plain_requests(uint32_t seed, int64_t vocab_size) {
  std::mt19937 random(seed);
  std::vector<RandomRequest> requests = random_requests(random, vocab_size);
  for (RandomRequest& request : requests) {
    request.params.ignore_eos = true;
    request.params.repetition_penalty = 1;
    request.params.logprobs.reset();
    request.params.prompt_logprobs.reset();
  }
  return requests;
}

DraftCounts counts_with_arrivals(const EngineConfig& config,
                                 const std::vector<RandomRequest>& requests, int max_arrival) {
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
  return {stats.num_draft_tokens, stats.num_accepted_tokens};
}

void expect_all_kept(const DraftCounts& counts) {
  EXPECT_GT(counts.made, 0);
  EXPECT_EQ(counts.kept, counts.made);
}

TEST_P(DraftersOnGpus, OneThatIsTheModelItselfIsAlwaysRight) {
  for (const int num_tokens : {1, 3, 8}) {
    EngineConfig config = tiny_on(GetParam());
    config.speculative_config = draft_model("qwen3-tied", num_tokens);
    expect_all_kept(counts_of(config, plain_requests(71, 128)));
    // Prompts in chunks, from the prefix cache, and computed anew.
    config.max_num_batched_tokens = 23;
    config.kv_cache_memory_bytes.reset();
    config.num_gpu_blocks_override = 11;
    expect_all_kept(counts_with_arrivals(config, plain_requests(72, 128), 30));
    // Sequences of many lengths with many numbers of drafts, without graphs.
    config.enforce_eager = true;
    expect_all_kept(counts_with_arrivals(config, plain_requests(75, 128), 30));
  }
}

TEST_P(DraftersOnGpus, DraftsThatCannotBeSampledChangeNoAnswer) {
  const ModelWithoutLogits broken("qwen3-tied");
  EngineConfig config = tiny_on(GetParam());
  std::vector<RandomRequest> requests = plain_requests(76, 128);
  // Where a callback is to see them, the host learns the drafts before they are verified.
  for (size_t i = 0; i < requests.size(); i += 2) {
    requests[i].params.logits_processors = {[](std::span<const int32_t>, std::span<float>) {}};
  }
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  config.speculative_config = drafter("draft_model", broken.folder(), 3);
  const auto outputs = run(config, requests, arrivals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
}

// The prompts of these are read by the model while the draft model does not run.
TEST_P(DraftersOnGpus, ADraftModelCatchesUpOnWhatItHasNotRead) {
  EngineConfig config = tiny_on(GetParam());
  config.speculative_config = draft_model("qwen3-tied", 2);
  config.max_num_batched_tokens = 5;  // less than it has to read at once
  expect_all_kept(counts_with_arrivals(config, plain_requests(73, 128), 10));
}

TEST_P(DraftersOnGpus, DummyWeightsOfTheSameSizesAreTheSame) {
  EngineConfig config = tiny_on(GetParam());
  config.load_format = LoadFormat::kDummy;
  config.speculative_config = draft_model("qwen3-tied", 4);
  expect_all_kept(counts_of(config, plain_requests(74, 128)));
}

// However a head came to read what it reads, and on whatever it runs, it says the same.
TEST_P(DraftersOnGpus, AHeadKeepsAsManyAsOnTheCpu) {
  std::vector<RandomRequest> requests = plain_requests(171, 120);
  requests.resize(2);
  for (RandomRequest& request : requests) {
    request.prompt.clear();
    for (int i = 0; i < 60; ++i) request.prompt.push_back(3 + i * 7 % 100);
    request.params.temperature = 0;
    request.params.n = 1;
    request.params.max_tokens = 30;
  }
  EngineConfig config = model_on("qwen3-bias-sharded", GetParam());
  config.speculative_config = eagle("speculators", 3);
  EngineConfig on_cpu = config;
  on_cpu.device = "cpu";
  const DraftCounts expected = counts_of(on_cpu, {requests[0]});
  EXPECT_GT(expected.made, 0);
  for (const int max_tokens : {4, 7, 100}) {
    config.max_num_batched_tokens = max_tokens;
    for (const bool enforce_eager : {false, true}) {
      config.enforce_eager = enforce_eager;
      const DraftCounts counts = counts_of(config, {requests[0]});
      EXPECT_EQ(counts.made, expected.made) << max_tokens;
      EXPECT_EQ(counts.kept, expected.kept) << max_tokens;
    }
  }
  // The second finds the first's prompt in the prefix cache.
  config.enable_prefix_caching = true;
  config.max_num_batched_tokens = 200;
  config.max_num_seqs = 1;
  const DraftCounts twice = counts_of(config, requests);
  EXPECT_EQ(twice.made, 2 * expected.made);
  EXPECT_EQ(twice.kept, 2 * expected.kept);
}

// Sampled, too. A draft's last bits may decide between two tokens that are almost equally likely.
TEST_P(DraftersOnGpus, HeadsKeepAboutAsManyAsOnTheCpu) {
  const std::pair<const char*, const char*> models_and_heads[] = {
      {"llama3", "midlayer"}, {"qwen3-tied", "shared"}, {"qwen3-bias-sharded", "speculators"}};
  const std::vector<RandomRequest> requests = plain_requests(172, 128);
  for (const auto& [model, head] : models_and_heads) {
    EngineConfig config = model_on(model, GetParam());
    config.speculative_config = eagle(head, 3);
    const DraftCounts counts = counts_of(config, requests);
    config.device = "cpu";
    const DraftCounts expected = counts_of(config, requests);
    EXPECT_GT(expected.kept, 0) << head;
    EXPECT_NEAR(static_cast<double>(counts.kept), static_cast<double>(expected.kept),
                std::max(1.0, 0.05 * static_cast<double>(expected.kept)))
        << head;
  }
}

// The bundled model's head, on golden questions: captured passes are replayed.
TEST_P(DraftersOnGpus, TheBundledHeadIsOftenRight) {
  const fs::path models = fs::path(QUIRE_SOURCE_DIR) / "models";
  const auto golden = nlohmann::json::parse(
      std::ifstream(golden_models().parent_path() / "lexicon" / "prompts.json"));
  EngineConfig config = lexicon_config();
  config.device = "cuda";
  config.dtype = "float32";
  config.tensor_parallel_size = GetParam().ranks;
  config.pipeline_parallel_size = GetParam().stages;
  config.threads = GetParam().ranks * GetParam().stages;
  config.max_model_len = 512;
  config.speculative_config = drafter("eagle3", models / "lexicon-eagle3", 4);
  LLMEngine engine(config);
  constexpr size_t kStep = kSanitized ? 80 : 20;
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
  EXPECT_EQ(num_answers, (golden.size() + kStep - 1) / kStep);
  EXPECT_GE(engine.stats().speculative.mean_acceptance_length(), 2.5);
}

// Masks need the drafts before the step is done.
TEST_P(DraftersOnGpus, ConstrainedAnswersStayAsTheyAre) {
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
  config.tensor_parallel_size = GetParam().ranks;
  config.pipeline_parallel_size = GetParam().stages;
  config.threads = GetParam().ranks * GetParam().stages;
  std::vector<RequestOutput> expected;
  {
    LLMEngine engine(config);
    expected = answers_of(engine, requests);
  }
  const fs::path models = fs::path(QUIRE_SOURCE_DIR) / "models";
  for (const SpeculativeConfig& speculation : {drafter("draft_model", models / "lexicon", 4),
                                               drafter("eagle3", models / "lexicon-eagle3", 3)}) {
    config.speculative_config = speculation;
    LLMEngine engine(config);
    const auto outputs = answers_of(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_matches(requests[i], outputs[i]);
      expect_same_outputs(outputs[i], expected[i],
                          speculation.method + ", request " + std::to_string(i));
    }
    EXPECT_GT(engine.stats().speculative.num_accepted_tokens, 0);
  }
}

TEST_P(DraftersOnGpus, CallbacksSeeTheTokensBefore) {
  std::vector<RandomRequest> requests = plain_requests(75, 128);
  requests.resize(3);
  for (RandomRequest& request : requests) {
    request.params.max_tokens = 30;
    request.params.logits_processors = {[](std::span<const int32_t> ids, std::span<float> logits) {
      if (!ids.empty()) logits[static_cast<size_t>(ids.back())] -= 0.25f;
    }};
  }
  EngineConfig config = tiny_on(GetParam());
  const std::vector<int> at_once(requests.size(), 0);
  const auto expected = run(config, requests, at_once);
  config.speculative_config = draft_model("qwen3-tied", 4);
  RunTotals totals;
  const auto outputs = run(config, requests, at_once, &totals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
  EXPECT_GT(totals.num_accepted_drafts, 0);
}

TEST_P(DraftersOnGpus, ASyntheticLengthIsTheMean) {
  for (SpeculativeConfig speculation : {draft_model("qwen2-tied", 4), eagle("shared", 4)}) {
    EngineConfig config = tiny_on(GetParam());
    speculation.synthetic_acceptance_length = 3;
    config.speculative_config = speculation;
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
    EXPECT_NEAR(engine.stats().speculative.mean_acceptance_length(), 3, 0.25) << speculation.method;
  }
}

TEST(DraftersOnAGpu, APlanCountsThem) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  EngineConfig config = tiny_on({});
  config.kv_cache_memory_bytes.reset();
  config.num_gpu_blocks_override = 20;
  const MemoryPlan without = plan(config);
  for (const SpeculativeConfig& speculation : {draft_model("qwen2-tied", 4), eagle("shared", 4)}) {
    config.speculative_config = speculation;
    const MemoryPlan with = plan(config);
    EXPECT_GT(with.bytes_per_block, without.bytes_per_block);
    const auto weights = std::ranges::find(with.buffers, "draft model", &PlannedBuffer::name);
    ASSERT_NE(weights, with.buffers.end());
    EXPECT_GT(weights->bytes, 0);
    EXPECT_GT(with.total_bytes, without.total_bytes + weights->bytes);
  }
}

TEST(DraftersOnAGpu, ADummyHeadNeedsItsConfigOnly) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  const TemporaryFolder folder;
  fs::copy(golden_models().parent_path() / "eagle" / "midlayer" / "config.json",
           folder.path() / "config.json");
  EngineConfig config = model_on("llama3", {});
  config.load_format = LoadFormat::kDummy;
  config.speculative_config = drafter("eagle3", folder.path(), 3);
  EXPECT_GT(counts_of(config, plain_requests(76, 120)).made, 0);
}

TEST(DraftersOnAGpu, OnesThatDoNotFitAreRefused) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  EngineConfig config = tiny_on({});
  config.speculative_config = draft_model("llama3", 4);
  EXPECT_THAT(refusal(config), AllOf(StartsWith("--speculative-config: the draft model "),
                                     HasSubstr("its vocabulary has 131 tokens, and that of the "
                                               "model 128; expected the same.")));
}

}  // namespace
}  // namespace quire
