// Adapters served on GPUs: the tokens of the CPU in float32, whatever else is in the batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "engine/gpu_test_util.h"
#include "engine/lora_test_util.h"
#include "engine/quantised_test_util.h"
#include "engine/random_requests.h"
#include "quire/llm.h"

namespace quire {
namespace {

using namespace engine_test;  // NOLINT(google-build-using-namespace)

constexpr const char* kModules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                    "gate_proj", "up_proj", "down_proj"};

class LoraOnGpus : public testing::TestWithParam<int> {
 protected:
  // Adapters "a", "b", ... of several ranks; the second and third have some modules only.
  EngineConfig config_with(int num_adapters, const std::string& model) {
    const int ranks[] = {1, 16, 5, 64, 33};
    EngineConfig config = base_config(model);
    config.dtype = "float32";
    config.kv_cache_memory_bytes = int64_t{1} << 24;
    config.lora.enabled = true;
    config.lora.max_lora_rank = 64;
    config.lora.max_loras = num_adapters;
    for (int i = 0; i < num_adapters; ++i) {
      const std::string name(1, static_cast<char>('a' + i));
      RandomAdapter adapter = {.seed = static_cast<uint64_t>(i),
                               .rank = ranks[i],
                               .modules = {std::begin(kModules), std::end(kModules)}};
      // Larger sums of more products would be all that a token depends on.
      adapter.largest = 0.3F / static_cast<float>(1 + ranks[i] / 8);
      if (i == 1) adapter.modules = {"q_proj", "v_proj", "down_proj"};
      if (i == 2) adapter.modules = {"up_proj"};
      write_adapter(root_.path() / name, model, adapter);
      config.lora.modules.push_back({name, (root_.path() / name).string()});
    }
    return config;
  }

  static EngineConfig on_gpu(EngineConfig config, int ranks) {
    config.device = "cuda";
    config.tensor_parallel_size = ranks;
    config.threads = ranks;
    return config;
  }

  // Greedy, of prompts that share a beginning; every sixth without an adapter.
  static std::vector<RandomRequest> requests_for(int num_adapters) {
    std::vector<RandomRequest> requests;
    for (int i = 0; i < 12; ++i) {
      RandomRequest request;
      for (int j = 0; j < 5 + 9 * (i % 5); ++j) {
        request.prompt.push_back(j < 20 ? 1 + j * 7 % 50 : 1 + (j * 5 + i) % 50);
      }
      request.params.temperature = 0;
      request.params.ignore_eos = true;
      request.params.max_tokens = 3 + i;
      const int which = i % (num_adapters + 1);
      if (which > 0) request.lora = std::string(1, static_cast<char>('a' + which - 1));
      requests.push_back(request);
    }
    return requests;
  }

  static void expect_tokens(const std::vector<RequestOutput>& actual,
                            const std::vector<RequestOutput>& expected, const std::string& where) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      EXPECT_EQ(actual[i].outputs[0].token_ids, expected[i].outputs[0].token_ids)
          << where << ", request " << i;
    }
  }

  // Without their adapters most requests have other tokens.
  static void expect_adapters_matter(const EngineConfig& config,
                                     std::vector<RandomRequest> requests,
                                     const std::vector<int>& arrivals,
                                     const std::vector<RequestOutput>& adapted) {
    for (RandomRequest& request : requests) request.lora.clear();
    const auto base = run(config, requests, arrivals);
    int num_changed = 0;
    for (size_t i = 0; i < base.size(); ++i) {
      num_changed += base[i].outputs[0].token_ids != adapted[i].outputs[0].token_ids ? 1 : 0;
    }
    EXPECT_GE(num_changed, 6);
  }

  TemporaryFolder root_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraOnGpus, testing::Values(1, 2, 4),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(LoraOnGpus, TokensAreThoseOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const char* model : {"qwen3-tied", "llama-bias"}) {
    const EngineConfig config = config_with(5, model);
    const std::vector<RandomRequest> requests = requests_for(5);
    std::vector<int> arrivals;
    for (int i = 0; i < std::ssize(requests); ++i) arrivals.push_back(i / 2);
    EngineConfig on_cpu = config;
    on_cpu.device = "cpu";
    const auto expected = run(on_cpu, requests, arrivals);
    expect_adapters_matter(on_cpu, requests, arrivals, expected);
    EngineConfig graphs = on_gpu(config, GetParam());
    expect_tokens(run(graphs, requests, arrivals), expected, std::string(model) + " in graphs");
    EngineConfig eager = graphs;
    eager.enforce_eager = true;
    eager.max_num_batched_tokens = 11;
    expect_tokens(run(eager, requests, arrivals), expected, std::string(model) + " in chunks");
    // Slots are taken from each other.
    EngineConfig few = graphs;
    few.lora.max_loras = 2;
    few.lora.max_cpu_loras = 5;
    few.enable_prefix_caching = false;
    expect_tokens(run(few, requests, arrivals), expected, std::string(model) + " in two slots");
  }
}

// Few sequences at a time go through the kernel of a whole step, where the GPUs have one.
TEST_P(LoraOnGpus, TokensOfFewSequencesAreThoseOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  for (const char* model : {"qwen3-tied", "llama-bias"}) {
    EngineConfig config = config_with(5, model);
    config.max_num_seqs = 4;
    const std::vector<RandomRequest> requests = requests_for(5);
    const std::vector<int> arrivals(requests.size(), 0);
    EngineConfig on_cpu = config;
    on_cpu.device = "cpu";
    const auto expected = run(on_cpu, requests, arrivals);
    EngineConfig graphs = on_gpu(config, GetParam());
    expect_tokens(run(graphs, requests, arrivals), expected, std::string(model) + " in graphs");
    EngineConfig eager = graphs;
    eager.enforce_eager = true;
    eager.max_num_seqs = 1;
    expect_tokens(run(eager, requests, arrivals), expected, std::string(model) + ", one by one");
  }
}

TEST_P(LoraOnGpus, TheZeroAdapterIsTheBase) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  EngineConfig config = on_gpu(base_config("qwen3-bf16"), GetParam());
  config.kv_cache_memory_bytes = int64_t{1} << 24;
  config.dtype = "float32";
  std::vector<RandomRequest> requests = requests_for(0);
  const std::vector<int> arrivals(requests.size(), 0);
  const auto expected = run(config, requests, arrivals);
  write_adapter(root_.path() / "zero", "qwen3-bf16", {.rank = 8, .largest = 0});
  config.lora.enabled = true;
  config.lora.modules = {{"zero", (root_.path() / "zero").string()}};
  expect_tokens(run(config, requests, arrivals), expected, "without an adapter");
  for (RandomRequest& request : requests) request.lora = "zero";
  expect_tokens(run(config, requests, arrivals), expected, "with the adapter");
}

// Adapters that PEFT has saved and engines serve.
constexpr const char* kGoldens[] = {"biases",         "biases-lora-only",
                                    "dora",           "embedding",
                                    "embedding-dora", "embedding-tied",
                                    "ensure-tied",    "ensure-tied-saved",
                                    "float16",        "fused",
                                    "head-tied",      "layers",
                                    "lora",           "lora-bias",
                                    "old-names",      "patterns",
                                    "rslora",         "saved",
                                    "saved-tied"};

class LoraCuda : public testing::Test {
 protected:
  static std::filesystem::path golden_folder(const std::string& golden) {
    return std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/lora" / golden;
  }
  static nlohmann::json golden_of(const std::string& golden) {
    return nlohmann::json::parse(std::ifstream(golden_folder(golden) / "golden.json"));
  }
  static EngineConfig config_of(const std::string& golden) {
    EngineConfig config = base_config(golden_of(golden)["base"].get<std::string>());
    config.device = "cuda";
    config.dtype = "float32";
    config.kv_cache_memory_bytes = int64_t{1} << 24;
    config.lora.enabled = true;
    config.lora.modules = {{"adapter", golden_folder(golden).string()}};
    return config;
  }
  // Of the tokens of a prompt that an adapter reads, or the base.
  static std::vector<float> logprobs_of(const EngineConfig& config,
                                        const std::vector<std::string>& loras = {"adapter"}) {
    LLM llm(config);
    std::vector<int32_t> prompt(40);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(1 + i * 7 % 50);
    SamplingParams params{.temperature = 0, .max_tokens = 1};
    params.prompt_logprobs = 0;
    const auto outputs = llm.generate({Prompt(prompt)}, std::vector{params}, loras);
    std::vector<float> logprobs;
    for (const auto& position : outputs[0].prompt_logprobs) {
      if (!position.empty()) logprobs.push_back(position.front().logprob);
    }
    return logprobs;
  }
  static float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    float most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
    return most;
  }
  static float largest(const std::vector<float>& values) {
    return largest_difference(values, std::vector<float>(values.size()));
  }
  // To those of float32.
  static void expect_close_logprobs(const char* dtype) {
    for (const char* golden : kGoldens) {
      EngineConfig config = config_of(golden);
      const std::vector<float> expected = logprobs_of(config);
      config.dtype = dtype;
      // In bfloat16 this base alone is off by 1.7e-2, and with an adapter merged by up to 2.4e-2.
      const float tolerance = golden_of(golden)["base"] == "qwen2-tied" ? 6e-2F : 3e-2F;
      expect_close(logprobs_of(config), expected, tolerance, std::string(golden) + ", " + dtype);
    }
  }
};

struct GpuLayout {
  int ranks = 1;
  int stages = 1;
};

class LoraGoldensOnGpus : public LoraCuda, public testing::WithParamInterface<GpuLayout> {
 protected:
  static size_t num_needed() { return static_cast<size_t>(GetParam().ranks * GetParam().stages); }
  static EngineConfig on_layout(EngineConfig config) {
    config.tensor_parallel_size = GetParam().ranks;
    config.pipeline_parallel_size = GetParam().stages;
    config.threads = GetParam().ranks * GetParam().stages;
    return config;
  }
  static bool divides(const std::string& model) {
    return load_model_config(model).num_attention_heads % GetParam().ranks == 0;
  }
  // Expects PEFT's tokens for all prompts of these goldens, which an engine answers at once.
  static void expect_tokens_of_peft(const EngineConfig& config,
                                    const std::vector<std::string>& goldens) {
    std::vector<Prompt> prompts;
    std::vector<SamplingParams> params;
    std::vector<std::string> loras;
    std::vector<std::vector<int32_t>> expected;
    for (const std::string& golden : goldens) {
      const nlohmann::json content = golden_of(golden);
      for (const nlohmann::json& prompt : content["prompts"]) {
        prompts.emplace_back(prompt["prompt_token_ids"].get<std::vector<int32_t>>());
        expected.push_back(prompt["output_token_ids"].get<std::vector<int32_t>>());
        params.push_back({.temperature = 0, .max_tokens = std::ssize(expected.back())});
        params.back().ignore_eos = true;
        loras.push_back(golden);
      }
    }
    LLM llm(config);
    const auto outputs = llm.generate(prompts, params, loras);
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(outputs[i].outputs[0].token_ids, expected[i]) << loras[i];
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraGoldensOnGpus,
                         testing::Values(GpuLayout{1, 1}, GpuLayout{2, 1}, GpuLayout{1, 2},
                                         GpuLayout{2, 2}),
                         [](const auto& info) {
                           return std::to_string(info.param.ranks) + "x" +
                                  std::to_string(info.param.stages);
                         });

TEST_P(LoraGoldensOnGpus, GiveTheTokensOfPeft) {
  QUIRE_SKIP_WITHOUT_GPUS(num_needed());
  for (const std::string golden : kGoldens) {
    EngineConfig config = on_layout(config_of(golden));
    if (!divides(config.model)) continue;
    config.lora.modules.front().name = golden;
    expect_tokens_of_peft(config, {golden});
  }
}

// All adapters of a base in one engine, which has fewer slots.
TEST_P(LoraGoldensOnGpus, GiveTheTokensOfPeftBesideOthers) {
  QUIRE_SKIP_WITHOUT_GPUS(num_needed());
  std::map<std::string, std::vector<std::string>> of_base;
  for (const std::string golden : kGoldens) of_base[golden_of(golden)["base"]].push_back(golden);
  for (const auto& [base, goldens] : of_base) {
    EngineConfig config = on_layout(config_of(goldens.front()));
    if (!divides(config.model)) continue;
    config.lora.modules.clear();
    for (const std::string& golden : goldens) {
      config.lora.modules.push_back({golden, golden_folder(golden).string()});
    }
    config.lora.max_loras = 2;
    config.lora.max_cpu_loras = static_cast<int>(std::max<size_t>(2, goldens.size()));
    expect_tokens_of_peft(config, goldens);
  }
}

TEST_F(LoraCuda, LogprobsAreCloseInBfloat16) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  expect_close_logprobs("bfloat16");
}

TEST_F(LoraCuda, LogprobsAreCloseInLowerPrecision) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  expect_close_logprobs("float16");
}

class LoraOfQuantisedBases : public LoraCuda, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LoraOfQuantisedBases, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

// The CPU rounds no activations to the weights' types in float32. A real GPU does with float8.
TEST_P(LoraOfQuantisedBases, HasTheLogprobsOfTheCpu) {
  QUIRE_SKIP_WITHOUT_GPUS(static_cast<size_t>(GetParam()));
  const TemporaryFolder root;
  for (const char* base : {"awq", "ct-int8", "ct-pack-4bit", "fp8-block", "gptq-act-order"}) {
    const auto model = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised" / base;
    const auto adapter = root.path() / base;
    write_adapter(adapter, model.string(), {.rank = 12});
    // A copy is dense, and takes the place of a product with quantised numbers.
    const auto copying = root.path() / (std::string(base) + "-copying");
    write_adapter(copying, model.string(), {.rank = 12, .copies = {"o_proj"}});
    EngineConfig config = on_gpus(model, GetParam());
    config.lora.enabled = true;
    config.lora.modules = {{"adapter", adapter.string()}, {"copying", copying.string()}};
    config.lora.max_cpu_loras = 2;
    const bool rounds = std::string_view(base).starts_with("fp8") && !has_simulated_gpus(config);
    const float tolerance = rounds ? 0.2F : 3e-2F;
    EngineConfig on_cpu = config;
    on_cpu.device = "cpu";
    on_cpu.dtype = "float32";
    const std::vector<float> unadapted = logprobs_of(on_cpu, {""});
    for (const char* name : {"adapter", "copying"}) {
      const std::vector<float> expected = logprobs_of(on_cpu, {name});
      EXPECT_GT(largest_difference(expected, unadapted), 0.3F * largest(expected)) << name;
      expect_close(logprobs_of(config, {name}), expected, tolerance,
                   std::string(base) + ", " + name);
    }
  }
}

}  // namespace
}  // namespace quire
