// Adapters beside their bases' weights, against what PEFT computes (scripts/make_lora_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "engine/lora_reader.h"
#include "loader/safetensors.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"
#include "quire/llm.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path golden_folder() {
  return fs::path(QUIRE_SOURCE_DIR) / "tests/golden";
}

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden_folder() / "lora")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

nlohmann::json golden_of(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(golden_folder() / "lora" / name / "golden.json"));
}

fs::path base_of(const nlohmann::json& golden) {
  return golden_folder() / "models" / golden["base"].get<std::string>();
}

class ServedAdapter : public ::testing::TestWithParam<std::string> {
 protected:
  ServedAdapter() : golden_(golden_of(GetParam())) {
    options_.config = load_model_config(base_of(golden_));
    options_.max_model_len = 256;
  }

  static fs::path adapter() { return golden_folder() / "lora" / GetParam(); }

  void expect_logits(TestRunOptions run) {
    const Checkpoint checkpoint = Checkpoint::open(base_of(golden_));
    const FillParameters fill = [&](const ParameterMap& parameters, ThreadPool& pool) {
      load_weights(checkpoint, parameters, pool, {});
    };
    const LoraTarget target = lora_target(base_of(golden_), options_.config, true, 8);
    const LoraWeights weights = read_lora(adapter(), target);
    run.lora = &weights;
    const MappedFile file = MappedFile::open(adapter() / "golden.safetensors");
    const auto tensors = parse_safetensors(file.bytes(), "golden.safetensors");
    for (const auto& prompt : golden_["prompts"]) {
      const std::vector<int32_t> tokens = prompt["prompt_token_ids"];
      const auto logits = run_prompt(options_, run, fill, tokens)[0].logits;
      const auto tensor =
          std::ranges::find(tensors, prompt["logits"].get<std::string>(), &CheckpointTensor::name);
      ASSERT_NE(tensor, tensors.end());
      expect_close(logits, prompt["logit_positions"], *tensor);
    }
  }

  nlohmann::json golden_;
  ModelOptions options_;

 private:
  static void expect_close(const std::vector<std::vector<float>>& logits,
                           const std::vector<size_t>& positions, const CheckpointTensor& tensor) {
    std::vector<float> expected(tensor.bytes / sizeof(float));
    std::memcpy(expected.data(), tensor.data, tensor.bytes);
    double largest = 0;
    double difference = 0;
    size_t next = 0;
    for (const size_t position : positions) {
      for (const float got : logits.at(position)) {
        const double want = expected.at(next++);
        ASSERT_FALSE(std::isnan(got));
        largest = std::max(largest, std::abs(want));
        difference = std::max(difference, std::abs(got - want));
      }
    }
    EXPECT_EQ(next, expected.size());
    EXPECT_LE(difference, 2e-5 * largest) << "relative " << difference / largest;
  }
};

INSTANTIATE_TEST_SUITE_P(Lora, ServedAdapter, ::testing::ValuesIn(golden_cases()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(ServedAdapter, Logits) {
  expect_logits({});
}

TEST_P(ServedAdapter, LogitsOfTwoRanks) {
  if (options_.config.num_attention_heads % 2 != 0) {
    GTEST_SKIP() << "two ranks cannot share an odd number of heads";
  }
  expect_logits({.size = 2});
}

TEST_P(ServedAdapter, LogitsOfTwoStages) {
  ASSERT_GE(options_.config.num_hidden_layers, 2);
  expect_logits({.stage_ends = {1, options_.config.num_hidden_layers}});
}

// All adapters of a base in one batch, beside the base itself.
TEST(ServedAdapters, GreedyTokensOfABatchWithSeveral) {
  std::map<std::string, std::vector<std::string>> by_base;
  for (const std::string& name : golden_cases()) {
    by_base[golden_of(name)["base"].get<std::string>()].push_back(name);
  }
  for (const auto& [base, names] : by_base) {
    EngineConfig config;
    config.model = (golden_folder() / "models" / base).string();
    config.dtype = "float32";
    config.skip_tokenizer_init = true;
    config.max_model_len = 128;
    config.threads = 2;
    config.max_num_batched_tokens = 33;
    config.lora.enabled = true;
    config.lora.max_loras = static_cast<int>(names.size());
    std::vector<Prompt> prompts;
    std::vector<SamplingParams> params;
    std::vector<std::string> loras;
    std::vector<std::vector<int32_t>> expected;
    for (const std::string& name : names) {
      config.lora.modules.push_back({name, (golden_folder() / "lora" / name).string()});
      const nlohmann::json golden = golden_of(name);
      for (const auto& prompt : golden["prompts"]) {
        for (const std::string& lora : {name, std::string()}) {
          prompts.emplace_back(prompt["prompt_token_ids"].get<std::vector<int32_t>>());
          SamplingParams greedy;
          greedy.temperature = 0;
          greedy.ignore_eos = true;
          expected.push_back(prompt["output_token_ids"].get<std::vector<int32_t>>());
          greedy.max_tokens = std::ssize(expected.back());
          params.push_back(greedy);
          loras.push_back(lora);
        }
      }
    }
    LLM llm(config);
    const auto outputs = llm.generate(prompts, params, loras);
    const auto alone = llm.generate(prompts, params);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<int32_t>& got = outputs[i].outputs[0].token_ids;
      EXPECT_EQ(got, loras[i].empty() ? alone[i].outputs[0].token_ids : expected[i])
          << base << " with \"" << loras[i] << "\", prompt " << i;
    }
  }
}

}  // namespace
}  // namespace quire
