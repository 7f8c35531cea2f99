// Adapters' trained copies of matrices, and of norms of queries and keys, on GPUs: against the CPU
// in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/gpu_test_util.h"
#include "engine/lora_gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/random_requests.h"
#include "quire/error.h"
#include "quire/llm_engine.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// Adapters "a", "b" and so on. The last has no copy.
std::vector<RandomAdapter> copying_adapters(const std::vector<std::string>& of_mlp,
                                            const std::vector<std::string>& head_norms) {
  std::vector<std::string> others = {"k_proj"};
  others.insert(others.end(), of_mlp.begin(), of_mlp.end());
  std::vector<RandomAdapter> all = {
      {.modules = {"q_proj", "o_proj"},
       .norms = {"norm", "input_layernorm"},
       .copies = {"embed_tokens", "lm_head"}},
      {.modules = {"k_proj", "lm_head", "embed_tokens"},
       .copies = {"q_proj", "v_proj", "o_proj", "down_proj"}},
      {.modules = {"down_proj"}, .norms = head_norms, .copies = others},
      {.modules = {"q_proj"}, .norms = {"norm"}, .copies = {"lm_head"}},
      {.modules = {"q_proj", "up_proj", "down_proj"}}};
  if (!head_norms.empty()) all[3].norms = {head_norms.back()};
  for (size_t i = 0; i < all.size(); ++i) all[i].seed = i;
  return all;
}

const std::vector<std::string> kOfMlp = {"gate_proj", "up_proj"};

struct Base {
  std::string model;
  std::vector<RandomAdapter> adapters;
};

// Those whose sizes these ranks can share.
std::vector<Base> bases_for(int ranks) {
  // Of these matrices several ranks have parts that are no multiples of 8, which are refused
  // (below).
  const auto of_mlp = ranks == 1 ? kOfMlp : std::vector<std::string>();
  std::vector<Base> bases = {{"qwen3-tied", copying_adapters(of_mlp, {"q_norm", "k_norm"})}};
  bases.push_back({"llama-bias", copying_adapters(of_mlp, {})});
  if (ranks <= 2) bases.push_back({"llama-mha", copying_adapters(kOfMlp, {})});
  if (ranks == 1) {
    std::vector<RandomAdapter> fused = copying_adapters({}, {});
    fused[1].copies = {"qkv_proj", "down_proj"};
    fused[1].modules = {"lm_head", "embed_tokens"};
    fused[2].copies = {"gate_up_proj"};
    bases.push_back({"phi3-sliding", fused});
  }
  return bases;
}

class LoraCopiesOnGpus : public AdaptersOnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraCopiesOnGpus, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

TEST_P(LoraCopiesOnGpus, GiveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const Base& base : bases_for(GetParam())) {
    const EngineConfig config = config_with(base.adapters, base.model);
    const std::vector<RandomRequest> requests = requests_for(base.adapters);
    const std::vector<int> arrivals = arrivals_of(requests);
    const auto expected = run(config, requests, arrivals);
    const EngineConfig graphs = on_gpus(config);
    expect_same(run(graphs, requests, arrivals), expected, base.model + " in graphs");
    EngineConfig eager = graphs;
    eager.enforce_eager = true;
    eager.max_num_batched_tokens = 11;
    expect_same(run(eager, requests, arrivals), expected, base.model + " in chunks");
    EngineConfig few = graphs;
    few.lora.max_loras = 2;
    few.lora.max_cpu_loras = static_cast<int>(base.adapters.size());
    expect_same(run(few, requests, arrivals), expected, base.model + " in two slots");
  }
}

// Each adapter alone changes most answers, and one slot serves one after the other.
TEST_P(LoraCopiesOnGpus, EachMatters) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const std::vector<RandomAdapter> adapters = bases_for(GetParam()).front().adapters;
  EngineConfig config = on_gpus(config_with(adapters, "qwen3-tied"));
  config.lora.max_loras = 1;
  config.lora.max_cpu_loras = 1;
  const std::vector<RandomRequest> requests = requests_for({});
  const std::vector<int> arrivals(requests.size(), 0);
  std::vector<std::vector<std::vector<int32_t>>> all;
  for (const std::string lora : {"", "a", "b", "c", "d"}) {
    std::vector<RandomRequest> adapted = requests;
    for (RandomRequest& request : adapted) request.lora = lora;
    std::vector<std::vector<int32_t>> answers;
    for (const RequestOutput& output : run(config, adapted, arrivals)) {
      answers.push_back(output.outputs[0].token_ids);
    }
    EXPECT_EQ(std::ranges::count(all, answers), 0) << lora << " has the answers of another";
    all.push_back(answers);
  }
}

// More rows than are gathered at a time, and than a layer computes at once; those of an adapter lie
// between others.
TEST_P(LoraCopiesOnGpus, LongPromptsBesideOthersGiveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const Base& base : bases_for(GetParam())) {
    EngineConfig config = config_with(base.adapters, base.model);
    config.max_model_len = 256;
    config.max_num_batched_tokens = 8192;
    config.enable_prefix_caching = false;
    std::vector<RandomRequest> requests;
    for (size_t i = 0; i < 22; ++i) {
      RandomRequest request;
      for (size_t j = 0; j < 200; ++j) {
        request.prompt.push_back(static_cast<int32_t>(1 + (j * 5 + i * 7) % 120));
      }
      request.params.temperature = 0;
      request.params.ignore_eos = true;
      request.params.max_tokens = 3;
      request.params.logprobs = 1;
      request.lora = std::vector<std::string>{"c", "", "b", "c", "a"}[i % 5];
      requests.push_back(request);
    }
    const std::vector<int> arrivals(requests.size(), 0);
    expect_same(run(on_gpus(config), requests, arrivals), run(config, requests, arrivals),
                base.model);
  }
}

// Each rank samples its share of the rows; drafts have rows of logits, too.
TEST_P(LoraCopiesOnGpus, TokensAreThoseOfTheCpuWithDrafts) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const Base base = bases_for(GetParam()).front();
  const EngineConfig config = config_with(base.adapters, base.model);
  expect_tokens_of_the_cpu_with_drafts(config, requests_for(base.adapters));
}

class LoraCopiesOnStages : public LoraCopiesOnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraCopiesOnStages, testing::Values(1, 2),
                         testing::PrintToStringParamName());

// The embedding's copy is on the first stage, the output layer's on the last, and both run their
// steps without a graph.
TEST_P(LoraCopiesOnStages, GiveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(2 * GetParam()));
  for (const Base& base : bases_for(GetParam())) {
    const EngineConfig config = config_with(base.adapters, base.model);
    expect_logprobs_of_the_cpu_in_stages(config, requests_for(base.adapters), base.model);
  }
}

class LoraCopyRoom : public AdaptersOnGpus {
 protected:
  // An engine that has one adapter, with this room for its copies.
  static void start(EngineConfig config, int64_t bytes) {
    config.lora.copy_memory_bytes = bytes;
    const LLMEngine engine(config);
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraCopyRoom, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(LoraCopyRoom, IsWhatAnAdapterMayTake) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const EngineConfig config =
      on_gpus(config_with({{.copies = {"embed_tokens", "down_proj"}}}, "qwen3-tied"));
  // Of 128 tokens and two layers of 56 features, each of 32 numbers.
  const int64_t bytes = (128 + 2 * 56) * 32 * 4 / GetParam();
  EXPECT_NO_THROW(start(config, bytes));
  EXPECT_THAT(
      [&] { start(config, bytes - 1); },
      ThrowsMessage<Error>(AllOf(HasSubstr("take " + std::to_string(bytes) + " bytes"),
                                 HasSubstr("leaves " + std::to_string(bytes - 1)),
                                 HasSubstr("--lora-copy-memory-bytes"), HasSubstr("quire merge"))));
}

TEST_P(LoraCopyRoom, IsThatOfTheAdaptersAtTheStart) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const EngineConfig config = on_gpus(config_with(
      {{.copies = {"down_proj"}}, {.seed = 1, .copies = {"embed_tokens"}}}, "qwen3-tied"));
  EngineConfig planned = config;
  planned.lora.modules.clear();
  const int64_t without = plan(planned).total_bytes;
  LLMEngine engine(config);
  const int64_t with = engine.memory_plan().total_bytes;
  EXPECT_GE(with - without, 2 * 128 * 32 * 4) << "each slot has room for the embedding";
  // An adapter that comes later has the same room.
  write_adapter(root_.path() / "small", "qwen3-tied", {.copies = {"o_proj"}});
  EXPECT_NO_THROW(engine.load_lora("small", (root_.path() / "small").string()));
  write_adapter(root_.path() / "large", "qwen3-tied", {.copies = {"embed_tokens", "o_proj"}});
  EXPECT_THAT([&] { engine.load_lora("large", (root_.path() / "large").string()); },
              ThrowsMessage<Error>(HasSubstr("--lora-copy-memory-bytes leaves ")));
}

TEST(LoraCopiesOfOddSizes, AreRefused) {
  QUIRE_SKIP_WITHOUT_GPUS(2);
  const TemporaryFolder root;
  write_adapter(root.path(), "qwen3-tied", {.copies = {"up_proj"}});
  EngineConfig config = base_config("qwen3-tied");
  config.device = "cuda";
  config.dtype = "float32";
  config.kv_cache_memory_bytes = int64_t{1} << 24;
  config.lora.enabled = true;
  config.lora.modules = {{"a", root.path().string()}};
  EXPECT_NO_THROW(const LLMEngine engine(config));
  config.tensor_parallel_size = 2;
  config.threads = 2;
  EXPECT_THAT([&] { const LLMEngine engine(config); },
              ThrowsMessage<Error>(AllOf(HasSubstr("up_proj"), HasSubstr("multiples of 8"),
                                         Not(HasSubstr("leaves")))));
}

}  // namespace
}  // namespace quire
