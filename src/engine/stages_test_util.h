#pragma once
// Models and requests for tests of models that are cut into stages.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "engine/random_requests.h"
#include "engine/speculative_test_util.h"
#include "quire/llm.h"

namespace quire::engine_test {

// Requests with every kind of penalty beside what random_requests() draws; the last has the prompt
// of the first.
inline std::vector<RandomRequest> requests_with_penalties(std::mt19937& random,
                                                          const EngineConfig& config) {
  std::vector<RandomRequest> requests = random_requests(random, LLMEngine(config).vocab_size());
  for (size_t i = 0; i < requests.size(); i += 3) {
    requests[i].params.presence_penalty = 0.7;
    requests[i].params.frequency_penalty = 0.4;
    requests[i].params.min_tokens = 1;
    requests[i].params.logit_bias = {{3, 1.5f}, {7, -2.0f}};
  }
  requests.front().prompt.resize(40, 1);
  requests.back().prompt = requests.front().prompt;
  requests.back().params.prompt_logprobs.reset();  // they would be computed, not found in the cache
  return requests;
}

// The tokens of several outputs of each prompt, by callbacks that look at all tokens so far.
inline std::vector<std::vector<int32_t>> answers_with_callbacks(const EngineConfig& config) {
  LLM llm(config);
  SamplingParams params{.n = 3, .max_tokens = 12, .ignore_eos = true, .seed = 5};
  params.logits_processors.push_back([](std::span<const int32_t> tokens, std::span<float> logits) {
    size_t sum = tokens.size();
    for (const int32_t token : tokens) sum += static_cast<size_t>(token);
    logits[sum % logits.size()] += 5;
  });
  std::vector<std::vector<int32_t>> answers;
  const std::vector<Prompt> prompts(6, std::vector<int32_t>{1, 2, 3});
  for (const RequestOutput& output : llm.generate(prompts, params)) {
    for (const CompletionOutput& answer : output.outputs) answers.push_back(answer.token_ids);
  }
  return answers;
}

// The config of a tiny model with more layers, for random weights.
class DeepModel {
 public:
  explicit DeepModel(int num_layers, int max_positions = 256)
      : folder_(std::filesystem::temp_directory_path() /
                ("quire_deep_" + std::to_string(num_layers) + "_" + std::to_string(getpid()))) {
    std::filesystem::create_directory(folder_);
    std::ifstream in(golden_models() / "qwen3-tied" / "config.json");
    nlohmann::json config = nlohmann::json::parse(in);
    config["num_hidden_layers"] = num_layers;
    config["max_position_embeddings"] = max_positions;
    config.erase("layer_types");
    std::ofstream(folder_ / "config.json") << config;
  }
  ~DeepModel() { std::filesystem::remove_all(folder_); }
  DeepModel(const DeepModel&) = delete;
  DeepModel& operator=(const DeepModel&) = delete;

  EngineConfig config() const {
    EngineConfig config = base_config("qwen3-tied");
    config.model = folder_.string();
    config.load_format = LoadFormat::kDummy;
    config.seed = 3;
    return config;
  }

 private:
  std::filesystem::path folder_;
};

// A folder with the config of a head for DeepModel that looks at these layers, for random weights;
// without any it is an EAGLE head.
class DeepHead {
 public:
  explicit DeepHead(const std::vector<int64_t>& layers)
      : method_(layers.empty() ? "eagle" : "eagle3") {
    auto json = nlohmann::json::parse(std::ifstream(golden_head("shared") / "config.json"));
    json.erase("eagle_config");
    if (layers.empty()) {
      json["architectures"] = {"LlamaForCausalLM"};
    } else {
      json["eagle_aux_hidden_state_layer_ids"] = layers;
    }
    std::ofstream(folder_.path() / "config.json") << json;
  }

  SpeculativeConfig drafts(int num_tokens) const {
    return drafter(method_, folder_.path(), num_tokens);
  }

 private:
  TemporaryFolder folder_;
  std::string method_;
};

}  // namespace quire::engine_test
