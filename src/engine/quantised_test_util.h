#pragma once
// Shared by the tests of quantised checkpoints on GPUs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "loader/safetensors.h"
#include "quire/llm.h"
#include "quire/plan.h"

namespace quire::engine_test {

inline EngineConfig on_gpus(const std::filesystem::path& model, int ranks) {
  EngineConfig config;
  config.model = model.string();
  config.device = "cuda";
  config.dtype = "bfloat16";
  config.tensor_parallel_size = ranks;
  config.skip_tokenizer_init = true;
  config.max_model_len = 128;
  config.kv_cache_memory_bytes = int64_t{1} << 26;
  return config;
}

inline bool has_simulated_gpus(const EngineConfig& config) {
  return plan(config).device_name.find("Simulated") != std::string::npos;
}

inline std::string detail_of(const EngineConfig& config, const std::string& buffer) {
  for (const PlannedBuffer& each : plan(config).buffers) {
    if (each.name == buffer) return each.detail;
  }
  return "no " + buffer;
}

inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                         float tolerance, const std::string& name) {
  ASSERT_EQ(actual.size(), expected.size());
  float most = 0;
  float worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << name << ", token " << i;
    most = std::max(most, std::abs(expected[i]));
    worst = std::max(worst, std::abs(actual[i] - expected[i]));
  }
  std::printf("%s: max|a-b| is %.2g of max|b|\n", name.c_str(), worst / most);
  EXPECT_LE(worst, tolerance * most) << name;
}

// The prompt of a golden, and transformers' log-probabilities of its tokens.
inline std::vector<int32_t> golden_prompt(const std::filesystem::path& folder) {
  std::ifstream file(folder / "golden.json");
  return nlohmann::json::parse(file).at("prompt_token_ids").get<std::vector<int32_t>>();
}

inline std::vector<float> golden_logprobs(const std::filesystem::path& folder) {
  const std::vector<int32_t> ids = golden_prompt(folder);
  const MappedFile file = MappedFile::open(folder / "golden.safetensors");
  const CheckpointTensor logits = parse_safetensors(file.bytes(), "golden.safetensors").at(0);
  const auto vocab = static_cast<size_t>(logits.shape.at(1));
  std::vector<float> row(vocab);
  std::vector<float> logprobs;
  for (size_t t = 0; t + 1 < ids.size(); ++t) {
    std::memcpy(row.data(), logits.data + t * vocab * sizeof(float), vocab * sizeof(float));
    double sum = 0;
    for (const float logit : row) sum += std::exp(double{logit});
    const auto next = static_cast<size_t>(ids[t + 1]);
    logprobs.push_back(row[next] - static_cast<float>(std::log(sum)));
  }
  return logprobs;
}

// An engine's log-probabilities of a prompt's tokens.
inline std::vector<float> prompt_logprobs(const EngineConfig& config,
                                          const std::vector<int32_t>& ids) {
  LLM llm(config);
  SamplingParams params{.temperature = 0, .max_tokens = 1};
  params.prompt_logprobs = 0;
  std::vector<float> logprobs;
  const RequestOutput output = llm.generate({Prompt(ids)}, params)[0];
  for (const auto& position : output.prompt_logprobs) {
    if (!position.empty()) logprobs.push_back(position.front().logprob);
  }
  return logprobs;
}

}  // namespace quire::engine_test
