// Ranks in several processes compute what ranks in one compute, bit for bit, in any schedule. The
// processes are threads here, which talk over this machine's loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine_setup.h"
#include "engine/nodes_test_util.h"
#include "engine/random_requests.h"
#include "engine/speculative_test_util.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::Each;
using testing::HasSubstr;

class EngineNodes : public testing::TestWithParam<Division> {
 protected:
  static EngineConfig config_of_one_process() {
    EngineConfig config = base_config("qwen3-tied");
    config.tensor_parallel_size = GetParam().ranks;
    config.threads = GetParam().ranks;
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Divisions, EngineNodes,
                         testing::Values(Division{2, 1, 2}, Division{1, 2, 2}, Division{2, 2, 2},
                                         Division{2, 2, 4}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "x" +
                                  std::to_string(test.param.stages) + "on" +
                                  std::to_string(test.param.nodes);
                         });

TEST_P(EngineNodes, ComputeWhatOneProcessComputes) {
  const Division division = GetParam();
  std::mt19937 random(static_cast<uint32_t>(division.ranks * 10 + division.nodes));
  EngineConfig config = config_of_one_process();
  std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].params.presence_penalty = 0.7;
    requests[i].params.min_tokens = 1;
    requests[i].params.logit_bias = {{3, 1.5f}, {7, -2.0f}};
  }
  const auto expected = run(config, requests, std::vector<int>(requests.size(), 0));

  config.pipeline_parallel_size = division.stages;
  config.threads = division.ranks * division.stages / division.nodes;
  OtherNodes others(division.nodes);
  for (int trial = 0; trial < 3; ++trial) {
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    EngineConfig trial_config = config;
    trial_config.enable_prefix_caching = trial % 3 != 0;
    trial_config.async_scheduling = trial % 2 == 0;
    trial_config.max_num_batched_tokens = trial % 2 == 0 ? draw(3, 40) : 512;
    trial_config.max_num_seqs = draw(2, 40);
    trial_config.num_gpu_blocks_override = 10 + draw(0, 6);
    std::vector<int> arrival_steps;
    for (size_t i = 0; i < requests.size(); ++i) arrival_steps.push_back(draw(0, 30));
    const auto outputs = run(others.with_nodes(trial_config), requests, arrival_steps);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i],
                   "trial " + std::to_string(trial) + ", request " + std::to_string(i));
    }
    EXPECT_THAT(others.join(), Each(std::string()));
  }
}

// Also with a model that drafts, which in stages is in another process than the rank that samples.
TEST_P(EngineNodes, ComputeWithDraftsWhatOneProcessComputesWithout) {
  const Division division = GetParam();
  std::mt19937 random(static_cast<uint32_t>(division.ranks * 10 + division.nodes));
  EngineConfig config = config_of_one_process();
  const std::vector<RandomRequest> requests =
      repetitive_requests(random, LLMEngine(config).vocab_size());
  const std::vector<int> arrival_steps(requests.size(), 0);
  const auto expected = run(config, requests, arrival_steps);

  config.pipeline_parallel_size = division.stages;
  config.threads = division.ranks * division.stages / division.nodes;
  config.max_num_batched_tokens = 40;
  config.num_gpu_blocks_override = 12;
  const std::string head = (golden_models().parent_path() / "eagle" / "shared").string();
  OtherNodes others(division.nodes);
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
    const auto outputs = run(others.with_nodes(config), requests, arrival_steps, &totals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i], method + ", request " + std::to_string(i));
    }
    // A head of random weights is seldom right.
    if (method != "eagle3") {
      EXPECT_GT(totals.num_accepted_drafts, 0) << method;
    }
    EXPECT_THAT(others.join(), Each(std::string()));
  }
}

// What another process has done comes once a second.
TEST_P(EngineNodes, KnowWhatEachStageHasDone) {
  const Division division = GetParam();
  EngineConfig config = config_of_one_process();
  config.pipeline_parallel_size = division.stages;
  config.threads = division.ranks * division.stages / division.nodes;
  OtherNodes others(division.nodes);
  LLMEngine engine(others.with_nodes(config));
  engine.add_request("a", std::vector<int32_t>{1, 2, 3}, {.max_tokens = 8, .ignore_eos = true});
  while (!engine.is_finished()) engine.step();
  const size_t num_stages = division.stages == 1 ? 0 : static_cast<size_t>(division.stages);
  const auto is_known = [](const StageStats& stage) {
    return stage.num_steps >= 8 && stage.busy_s > 0;
  };
  while (!std::ranges::all_of(engine.stats().stages, is_known)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(engine.stats().stages.size(), num_stages);
}

TEST(EngineOnNodes, StopsLoadingWhenTheGroupEnds) {
  EngineConfig config = base_config("qwen3-tied");
  config.tensor_parallel_size = 2;
  // A second model to load.
  SpeculativeConfig& speculation = config.speculative_config.emplace();
  speculation.method = "draft_model";
  speculation.model = config.model;
  OtherNodes others(2);
  for (const bool ends : {false, true}) {
    EngineSetup setup = set_up_node(others.with_nodes(config));
    int num_calls = 0;
    setup.executor.on_progress = [&](std::string_view, int64_t, int64_t) {
      ++num_calls;
      if (ends) setup.executor.nodes->fail("It was enough.");
    };
    std::string error;
    try {
      start_executor(setup, nullptr, nullptr, nullptr);
    } catch (const Error& failure) {
      error = failure.what();
    }
    EXPECT_EQ(error, ends ? "It was enough." : "");
    EXPECT_EQ(num_calls, ends ? 1 : 2);
  }
  EXPECT_THAT(others.join(), Each(HasSubstr("It was enough.")));
}

// A step of one new sequence.
ScheduledBatch first_step(bool has_callback) {
  Request request;
  request.prompt_token_ids = {1, 2, 3};
  request.has_logits_processors = has_callback;
  ScheduledBatch batch;
  batch.added = {{1, std::make_shared<const Request>(std::move(request)), 0, {}}};
  batch.sequences = {{.id = 1, .num_tokens = 3, .samples = true, .new_block_ids = {0}}};
  batch.num_tokens = 3;
  return batch;
}

TEST(EngineOnNodes, EndsWhereARankComputesAndDoesNotGetOn) {
  EngineConfig config = base_config("qwen3-tied");
  config.pipeline_parallel_size = 2;
  OtherNodes others(2);
  std::promise<void> end;
  {
    EngineSetup setup = set_up_node(others.with_nodes(config));
    setup.executor.stall_s = 0.5;
    const auto processors = std::make_shared<LogitsProcessorRegistry>();
    processors->add(0,
                    {[&](std::span<const int32_t>, std::span<float>) { end.get_future().wait(); }});
    const auto executor = start_executor(setup, processors, nullptr, nullptr);
    executor->submit(std::make_shared<const ScheduledBatch>(first_step(true)));
    EXPECT_THAT([&] { executor->wait(); },
                testing::ThrowsMessage<Error>(
                    "The group of 2 nodes ends: node 0 has computed nothing for 0.5 s."));
    end.set_value();
  }
  EXPECT_THAT(others.join(), Each(HasSubstr("node 0 has computed nothing for 0.5 s.")));
}

TEST(EngineOnNodes, EndsWhereAllRanksWait) {
  EngineConfig config = base_config("qwen3-tied");
  config.pipeline_parallel_size = 2;
  config.cluster.num_nodes = 2;
  config.cluster.master_port = 0;
  EngineConfig of_other = config;
  of_other.cluster.node_rank = 1;
  std::thread other;
  std::string failure;
  config.cluster.on_message = [&](const std::string& line) {
    std::smatch match;
    if (!std::regex_search(line, match, std::regex("waits at 127.0.0.1:([0-9]+)"))) return;
    of_other.cluster.master_port = std::stoi(match[1]);
    other = std::thread([&] {
      // The node takes no step, as if its rank had not come back from waiting for one.
      const EngineSetup setup = set_up_node(of_other);
      const auto executor = start_executor(setup, nullptr, nullptr, nullptr);
      while (!setup.executor.nodes->failure()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      failure = *setup.executor.nodes->failure();
    });
  };
  const std::string expected =
      "The group of 2 nodes ends: no node has computed anything for 0.55 s.";
  {
    EngineSetup setup = set_up_node(config);
    setup.executor.stall_s = 0.5;
    const auto executor = start_executor(setup, nullptr, nullptr, nullptr);
    executor->submit(std::make_shared<const ScheduledBatch>(first_step(false)));
    EXPECT_THAT([&] { executor->wait(); }, testing::ThrowsMessage<Error>(expected));
  }
  other.join();
  EXPECT_EQ(failure, expected);
}

TEST(EngineOnNodes, EndsThemWithTheErrorOfACallback) {
  EngineConfig config = base_config("qwen3-tied");
  config.tensor_parallel_size = 2;
  OtherNodes others(2);
  {
    LLMEngine engine(others.with_nodes(config));
    SamplingParams params;
    params.logits_processors.push_back(
        [](std::span<const int32_t>, std::span<float>) { throw Error("the callback fails"); });
    engine.add_request("a", std::vector<int32_t>{1, 2, 3}, params);
    EXPECT_THAT(
        [&] {
          while (!engine.is_finished()) engine.step();
        },
        testing::ThrowsMessage<Error>("the callback fails"));
  }
  EXPECT_THAT(others.join(), Each(HasSubstr("Node 0 has failed: the callback fails")));
}

TEST(EngineOnNodes, RefusesWhatCannotBeOnNodes) {
  const auto refused = [](const auto& change) -> std::string {
    EngineConfig config = base_config("qwen3-tied");
    config.tensor_parallel_size = 2;
    config.cluster.num_nodes = 2;
    change(config);
    try {
      const LLMEngine engine(config);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.node_rank = 1; }),
              HasSubstr("the engine is on node 0"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.num_nodes = 3; }),
              HasSubstr("expected a multiple of --nnodes 3"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.num_nodes = 0; }),
              HasSubstr("--nnodes is 0"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.secret = "short"; }),
              HasSubstr("QUIRE_GROUP_SECRET has 5 characters; expected 16 or more"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.master_addr = "192.0.2.1"; }),
              HasSubstr("is not this machine's loopback"));
  EXPECT_THAT(refused([](EngineConfig& config) { config.cluster.join_timeout_s = 0; }),
              HasSubstr("--join-timeout is 0"));
  // Before it waits for the others.
  EXPECT_THAT(refused([](EngineConfig& config) {
                config.tensor_parallel_size = config.threads = config.cluster.num_nodes = 3;
              }),
              HasSubstr("tensor_parallel_size is 3, but the model's num_attention_heads is"));
}

}  // namespace
}  // namespace quire
