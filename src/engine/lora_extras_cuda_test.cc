// What adapters change beside linear layers within the model, on GPUs: the embedding, norms and the
// output layer, against the CPU in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/gpu_test_util.h"
#include "engine/lora_gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/random_requests.h"
#include "quire/llm_engine.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

// Of adapters "a", "b" and so on, and one that changes only linear layers.
std::vector<RandomAdapter> mixed_adapters() {
  const std::vector<std::string> norms = {"norm", "input_layernorm", "post_attention_layernorm"};
  std::vector<RandomAdapter> all = {
      {.rank = 6, .modules = {"embed_tokens", "lm_head", "q_proj", "up_proj"}, .norms = norms},
      {.rank = 16, .modules = {"lm_head"}},
      {.rank = 5, .modules = {"embed_tokens"}},
      {.rank = 1, .modules = {"o_proj"}, .norms = {"input_layernorm"}},
      {.rank = 33,
       .modules = {"embed_tokens", "lm_head", "down_proj"},
       .is_dora = true,
       .norms = {"norm"}},
      {.rank = 8, .modules = {"q_proj", "down_proj"}}};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].seed = i;
    all[i].largest = 0.3F / static_cast<float>(1 + all[i].rank / 8);
  }
  return all;
}

class LoraExtrasOnGpus : public AdaptersOnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraExtrasOnGpus, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

TEST_P(LoraExtrasOnGpus, GiveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const std::string model : {"qwen3-tied", "llama-bias"}) {
    const EngineConfig config = config_with(mixed_adapters(), model);
    const std::vector<RandomRequest> requests = requests_for(mixed_adapters());
    const std::vector<int> arrivals = arrivals_of(requests);
    const auto expected = run(config, requests, arrivals);
    const EngineConfig graphs = on_gpus(config);
    expect_same(run(graphs, requests, arrivals), expected, model + " in graphs");
    EngineConfig eager = graphs;
    eager.enforce_eager = true;
    eager.max_num_batched_tokens = 11;
    expect_same(run(eager, requests, arrivals), expected, model + " in chunks");
    EngineConfig few = graphs;
    few.lora.max_loras = 2;
    few.lora.max_cpu_loras = static_cast<int>(mixed_adapters().size());
    expect_same(run(few, requests, arrivals), expected, model + " in two slots");
  }
}

// Each adapter alone changes most answers, and the same slot serves one after the other.
TEST_P(LoraExtrasOnGpus, EachMatters) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  EngineConfig config = on_gpus(config_with(mixed_adapters(), "qwen3-tied"));
  config.lora.max_loras = 1;
  config.lora.max_cpu_loras = 1;
  LLMEngine engine(config);
  const std::vector<RandomRequest> requests = requests_for({});
  const auto answers_of = [&](const std::string& lora) {
    std::vector<std::vector<int32_t>> answers;
    for (const RandomRequest& request : requests) {
      engine.add_request("", request.prompt, request.params,
                         {.output_kind = OutputKind::kFinalOnly, .lora = lora});
      while (!engine.is_finished()) {
        for (const RequestOutput& output : engine.step()) {
          answers.push_back(output.outputs[0].token_ids);
        }
      }
    }
    return answers;
  };
  const auto base = answers_of("");
  std::vector<std::vector<std::vector<int32_t>>> all = {base};
  for (const RandomAdapter& adapter : mixed_adapters()) {
    const std::string name = name_of_adapter(adapter);
    const auto answers = answers_of(name);
    EXPECT_EQ(std::ranges::count(all, answers), 0) << name << " has the answers of another";
    all.push_back(answers);
    EXPECT_EQ(answers_of(""), base) << "after " << name;
  }
}

// The pages of a prefix belong to what an adapter computes of it: its embedding and norms, too.
TEST_P(LoraExtrasOnGpus, PrefixesAreTheAdapters) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const EngineConfig config = config_with(mixed_adapters(), "qwen3-tied");
  RandomRequest request = requests_for(mixed_adapters())[4];
  request.params.prompt_logprobs.reset();
  std::vector<RandomRequest> requests;
  for (int round = 0; round < 2; ++round) {
    for (const char* lora : {"a", "c", "d", ""}) {
      request.lora = lora;
      requests.push_back(request);
    }
  }
  const std::vector<int> arrivals = {0, 30, 60, 90, 120, 150, 180, 210};
  EngineConfig uncached = config;
  uncached.enable_prefix_caching = false;
  RunTotals totals;
  const auto outputs = run(on_gpus(config), requests, arrivals, &totals);
  expect_same(outputs, run(uncached, requests, arrivals), "cached");
  EXPECT_GE(totals.prefix_cache_hits, 4 * 32);
}

// Each rank samples its share of the rows, once it has the logits of the others' parts of the
// vocabulary; drafts have rows of logits, too.
TEST_P(LoraExtrasOnGpus, TokensAreThoseOfTheCpuWhereRanksShareRows) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const EngineConfig config = config_with(mixed_adapters(), "llama-bias");
  expect_tokens_of_the_cpu_with_drafts(config, requests_for(mixed_adapters()));
}

class LoraExtrasOnStages : public LoraExtrasOnGpus {};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraExtrasOnStages, testing::Values(1, 2),
                         testing::PrintToStringParamName());

// Half of the model's layers on each stage: the embedding on the first, the output on the last.
TEST_P(LoraExtrasOnStages, GiveTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(2 * GetParam()));
  for (const std::string model : {"qwen3-tied", "llama-bias"}) {
    const EngineConfig config = config_with(mixed_adapters(), model);
    expect_logprobs_of_the_cpu_in_stages(config, requests_for(mixed_adapters()), model);
  }
}

}  // namespace
}  // namespace quire
