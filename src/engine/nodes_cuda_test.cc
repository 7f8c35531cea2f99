// Ranks on GPUs in several processes give the tokens of ranks in one, in any schedule. The
// processes are threads here, which talk over this machine's loopback and have GPUs of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/sanitized_test_util.h"
#include "base/temporary_folder_test_util.h"
#include "engine/gpu_outputs_test_util.h"
#include "engine/gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/nodes_test_util.h"
#include "engine/speculative_gpu_test_util.h"
#include "engine/stages_test_util.h"
#include "quire/llm.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::Each;
using testing::HasSubstr;

class NodesWithGpus : public testing::TestWithParam<Division> {
 protected:
  void SetUp() override {
    QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam().ranks * GetParam().stages));
  }

  static EngineConfig of_one_process() { return tiny_on_gpus(GetParam().ranks); }
  // The same on nodes, which have to have ended in order when the test is over.
  EngineConfig on_nodes(EngineConfig config) {
    EXPECT_THAT(others_.join(), Each(std::string()));
    config.pipeline_parallel_size = GetParam().stages;
    config.threads = GetParam().ranks * GetParam().stages / GetParam().nodes;
    return others_.with_nodes(std::move(config));
  }
  void TearDown() override { EXPECT_THAT(others_.join(), Each(std::string())); }

 private:
  OtherNodes others_{GetParam().nodes};
};
INSTANTIATE_TEST_SUITE_P(Divisions, NodesWithGpus,
                         testing::Values(Division{2, 1, 2}, Division{4, 1, 2}, Division{4, 1, 4},
                                         Division{1, 2, 2}, Division{2, 2, 2}, Division{2, 2, 4}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "x" +
                                  std::to_string(test.param.stages) + "on" +
                                  std::to_string(test.param.nodes);
                         });

// Steps that are captured and not, too few blocks, sequences that come and go at any time, tokens
// that the host samples, penalties that look at all tokens so far.
TEST_P(NodesWithGpus, GiveTheTokensOfOneProcess) {
  std::mt19937 random(static_cast<uint32_t>(10 * GetParam().ranks + GetParam().nodes));
  const EngineConfig config = of_one_process();
  std::vector<RandomRequest> requests = requests_with_penalties(random, config);
  for (size_t i = 0; i < requests.size(); i += 2) requests[i].params.logprobs.reset();
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));

  RunTotals totals;
  constexpr int kTrials = kSanitized ? 3 : 6;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = config;
    trial_config.enforce_eager = trial % 3 == 1;
    trial_config.enable_prefix_caching = trial % 3 != 0;
    trial_config.async_scheduling = trial % 2 == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(2, 40);
    trial_config.kv_cache_memory_bytes.reset();
    trial_config.num_gpu_blocks_override = trial == kTrials - 1 ? 500 : 10 + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    arrival_steps.front() = 0;
    arrival_steps.back() = 30;
    const auto outputs = run(on_nodes(trial_config), requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_outputs(outputs[i], expected[i],
                          "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
  }
  EXPECT_GT(totals.num_preemptions, 0) << "the schedules were meant to preempt";
  EXPECT_GT(totals.prefix_cache_hits, 0) << "the requests were meant to share prefixes";
}

TEST_P(NodesWithGpus, GiveThemWithDrafts) {
  std::mt19937 random(50);
  EngineConfig config = of_one_process();
  const std::vector<RandomRequest> requests = requests_for_gpus(random, true);
  const std::vector<int> arrival_steps(requests.size(), 0);
  const auto expected = run(config, requests, arrival_steps);
  const std::string head = (golden_models().parent_path() / "eagle" / "shared").string();
  for (const auto& [method, model] : {std::pair<std::string, std::string>("ngram", ""),
                                      {"draft_model", config.model},
                                      {"eagle3", head}}) {
    SpeculativeConfig& speculation = config.speculative_config.emplace();
    speculation.method = method;
    speculation.model = model;
    speculation.num_speculative_tokens = 3;
    speculation.adaptive = false;
    if (model.empty()) speculation.prompt_lookup_min = 1;
    RunTotals totals;
    const auto outputs = run(on_nodes(config), requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_same_outputs(outputs[i], expected[i], method + ", request " + std::to_string(i));
    }
    // A head of random weights is seldom right.
    if (method != "eagle3") {
      EXPECT_GT(totals.num_accepted_drafts, 0) << method;
    }
  }
}

// One line of node 0 says it.
TEST_P(NodesWithGpus, SayHowTheyTalk) {
  const Division division = GetParam();
  EngineConfig config = on_nodes(of_one_process());
  std::mutex mutex;
  std::vector<std::string> lines;
  config.cluster.on_message = [&, before = config.cluster.on_message](const std::string& line) {
    before(line);
    const std::lock_guard lock(mutex);
    if (line.find("between GPUs") != std::string::npos) lines.push_back(line);
  };
  { const LLMEngine engine(config); }
  std::string expected = "node 0: between GPUs of several processes ";
  const bool has_apart_ranks = division.ranks * division.stages / division.nodes < division.ranks;
  if (has_apart_ranks) expected += "the ranks of a stage share GPU memory (CUDA IPC) and use NCCL";
  if (has_apart_ranks && division.stages > 1) expected += ", ";
  if (division.stages > 1) expected += "stages use NCCL";
  EXPECT_THAT(lines, testing::ElementsAre(expected));
}

TEST_P(NodesWithGpus, CallbacksSeeWhatTheySeeInOneProcess) {
  EXPECT_EQ(answers_with_callbacks(on_nodes(of_one_process())),
            answers_with_callbacks(of_one_process()));
}

TEST_P(NodesWithGpus, HaveAdapters) {
  const TemporaryFolder root;
  write_adapter(root.path() / "a", "qwen3-tied",
                {.seed = 7,
                 .rank = 8,
                 .modules = {"q_proj", "o_proj", "up_proj"},
                 .copies = {"down_proj", "embed_tokens"}});
  EngineConfig config = of_one_process();
  config.lora.enabled = true;
  config.lora.max_lora_rank = 8;
  config.lora.copy_memory_bytes = int64_t{1} << 16;
  config.lora.modules.push_back({"a", (root.path() / "a").string()});
  std::vector<RandomRequest> requests(8);
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.assign(5 + 7 * i, static_cast<int32_t>(i + 1));
    requests[i].params = {.max_tokens = 12, .ignore_eos = true, .seed = i};
    if (i % 3 != 0) requests[i].lora = "a";
  }
  const std::vector<int> arrivals = {0, 0, 1, 2, 3, 4, 4, 9};
  const auto expected = run(config, requests, arrivals);
  const auto outputs = run(on_nodes(config), requests, arrivals);
  for (size_t i = 0; i < requests.size(); ++i) {
    expect_same_outputs(outputs[i], expected[i], "request " + std::to_string(i));
  }
}

TEST(NodesCuda, WhatTheyDoNotTakeIsAnError) {
  QUIRE_SKIP_WITHOUT_GPUS(2);
  EngineConfig config = tiny_on_gpus(64);
  config.threads = 64;
  config.cluster.num_nodes = 2;
  EXPECT_THAT([&] { const LLMEngine engine(config); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("--tensor-parallel-size over --nnodes is 32, but CUDA finds")));
}

TEST(NodesCuda, ANodeWithoutGpusIsNamed) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  OtherNodes others(2);
  EngineConfig config = tiny_on_gpus(2);
  config.threads = 1;
  const auto refused = testing::ThrowsMessage<Error>(
      HasSubstr("Node 1 differs from node 0 in what its ranks run on (--device): the CPU there, "
                "GPUs of compute capability"));
  EXPECT_THAT([&] { const LLMEngine engine(others.with_nodes(config, "cpu")); }, refused);
  EXPECT_THAT(others.join(), Each(HasSubstr("what its ranks run on")));
}

}  // namespace
}  // namespace quire
