// Adapters whose ranks are in several processes: the other nodes load what node 0 loads, and bring
// the tokens of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "cluster/cluster_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/node_loras.h"
#include "engine/nodes_test_util.h"
#include "engine/random_requests.h"
#include "request/lora_order.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::Each;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kBase = "qwen3-tied";

class EngineNodesLora : public testing::Test {
 protected:
  std::string folder(const std::string& name) const { return (root_.path() / name).string(); }
  void write(const std::string& name, uint64_t seed) {
    write_adapter(root_.path() / name, kBase, {.seed = seed, .rank = 2});
  }

  // Adapters "a", "b" and "c"; one stays in host memory.
  EngineConfig config_with_adapters() {
    EngineConfig config = base_config(kBase);
    config.dtype = "float32";
    config.lora.enabled = true;
    config.lora.max_lora_rank = 8;
    config.lora.max_loras = 1;
    config.lora.max_cpu_loras = 1;
    for (const char name : {'a', 'b', 'c'}) {
      write(std::string(1, name), static_cast<uint64_t>(name));
      config.lora.modules.push_back({std::string(1, name), folder(std::string(1, name))});
    }
    return config;
  }

  TemporaryFolder root_;
};

TEST_F(EngineNodesLora, ComputeWhatOneProcessComputes) {
  for (const Division& division : {Division{2, 1, 2}, {1, 2, 2}, {2, 2, 4}}) {
    SCOPED_TRACE(division.nodes);
    std::mt19937 random(7);
    EngineConfig config = config_with_adapters();
    config.tensor_parallel_size = division.ranks;
    config.threads = division.ranks;
    std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (i % 4 > 0) requests[i].lora = std::string(1, static_cast<char>('a' + i % 4 - 1));
    }
    std::vector<int> arrivals(requests.size(), 0);
    const auto expected = run(config, requests, arrivals);

    config.pipeline_parallel_size = division.stages;
    config.threads = division.ranks * division.stages / division.nodes;
    config.max_num_batched_tokens = 23;
    // Late ones come when their adapters' weights are gone, and are read anew.
    for (size_t i = 0; i < arrivals.size(); ++i) arrivals[i] = static_cast<int>(60 * (i % 3));
    OtherNodes others(division.nodes);
    const auto outputs = run(others.with_nodes(config), requests, arrivals);
    for (size_t i = 0; i < requests.size(); ++i) {
      expect_equal(outputs[i], expected[i], "request " + std::to_string(i));
    }
    EXPECT_THAT(others.join(), Each(std::string()));
  }
}

std::vector<int32_t> tokens_of(LLMEngine& engine, const std::string& lora) {
  SamplingParams params{.max_tokens = 8, .ignore_eos = true};
  params.temperature = 0;
  engine.add_request("a", std::vector<int32_t>{1, 2, 3}, params, {.lora = lora});
  std::vector<int32_t> tokens;
  while (!engine.is_finished()) {
    for (const RequestOutput& output : engine.step()) tokens = output.outputs[0].token_ids;
  }
  return tokens;
}

TEST_F(EngineNodesLora, AreLoadedReplacedAndUnloadedWhileTheEngineRuns) {
  EngineConfig config = config_with_adapters();
  config.lora.modules.clear();
  config.tensor_parallel_size = 2;
  config.threads = 2;
  const auto answers = [this](const EngineConfig& of_engine) {
    LLMEngine engine(of_engine);
    std::vector<std::vector<int32_t>> tokens = {tokens_of(engine, "")};
    engine.load_lora("x", folder("a"));
    tokens.push_back(tokens_of(engine, "x"));
    engine.load_lora("x", folder("b"), true);
    tokens.push_back(tokens_of(engine, "x"));
    EXPECT_THROW(engine.load_lora("y", folder("none")), Error);
    engine.load_lora("y", folder("a"));
    engine.unload_lora("x");
    tokens.push_back(tokens_of(engine, "y"));
    return tokens;
  };
  const auto of_one = answers(config);
  EXPECT_NE(of_one[0], of_one[1]);
  EXPECT_NE(of_one[1], of_one[2]);
  EXPECT_EQ(of_one[1], of_one[3]);
  config.threads = 1;
  OtherNodes others(2);
  EXPECT_EQ(answers(others.with_nodes(config)), of_one);
  EXPECT_THAT(others.join(), Each(std::string()));
}

TEST_F(EngineNodesLora, AFolderThatIsMissingEndsTheStartOfAllWithItsName) {
  EngineConfig config = config_with_adapters();
  config.tensor_parallel_size = 2;
  config.lora.modules = {{"x", folder("none")}};
  OtherNodes others(2);
  EXPECT_THAT([&] { LLMEngine(others.with_nodes(config)); },
              ThrowsMessage<Error>(HasSubstr(folder("none"))));
  EXPECT_THAT(others.join(), Each(HasSubstr("Node 0 cannot start: ")));
}

TEST_F(EngineNodesLora, ANodeLoadsWhatItIsToldAndForgetsIt) {
  write("a", 1);
  const LoraTarget target =
      lora_target(golden_models() / kBase, load_model_config(golden_models() / kBase), true, 8);
  const std::string hash = read_lora(folder("a"), target).content_hash;
  const auto errors = cluster::run_nodes(2, [&](const auto& group) {
    if (group->node() == 0) {
      const auto order = [&](const std::string& of_files, const std::string& path) {
        return group->give_order(encode_lora_order({7, of_files, path}));
      };
      EXPECT_THAT(order("another hash", folder("a")),
                  HasSubstr("a differs from the adapter of node 0; expected the same files"));
      EXPECT_THAT(order(hash, folder("none")), HasSubstr("Node 1: "));
      EXPECT_EQ(order(hash, folder("a")), "");
      group->agree_least(1);
      return;
    }
    NodeLoras loras(group, target);
    group->agree_least(1);
    EXPECT_EQ(loras.hold(7)->content_hash, hash);
    loras.forget(std::vector<uint64_t>{7, 9});
    EXPECT_THAT([&] { loras.hold(7); }, ThrowsMessage<Error>(HasSubstr("was not loaded here")));
  });
  EXPECT_THAT(errors, Each(std::string()));
}

}  // namespace
}  // namespace quire
