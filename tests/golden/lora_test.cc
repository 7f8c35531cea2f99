// Adapters merged into their bases, against what PEFT computes with them beside the bases' weights
// (scripts/make_lora_goldens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mapped_file.h"
#include "base/temporary_folder_test_util.h"
#include "loader/safetensors.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"
#include "quire/merge.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path lora_goldens() {
  return fs::path(QUIRE_SOURCE_DIR) / "tests/golden/lora";
}

std::vector<std::string> lora_cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(lora_goldens())) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

// What PEFT computed, and the folder into which the adapter was merged.
class MergedAdapter : public ::testing::TestWithParam<std::string> {
 protected:
  MergedAdapter() : golden_(nlohmann::json::parse(std::ifstream(adapter() / "golden.json"))) {
    MergeOptions merge;
    merge.model =
        (fs::path(QUIRE_SOURCE_DIR) / "tests/golden/models" / golden_["base"].get<std::string>())
            .string();
    merge.adapter = adapter().string();
    merge.out = root_.path() / "merged";
    merge.threads = 2;
    result_ = merge_lora(merge).value();
    options_.config = load_model_config(result_.out);
    options_.max_model_len = 256;
  }

  static fs::path adapter() { return lora_goldens() / GetParam(); }

  std::vector<std::vector<float>> logits_after(const std::vector<int32_t>& tokens) {
    const Checkpoint checkpoint = Checkpoint::open(result_.out);
    const FillParameters fill = [&](const ParameterMap& parameters, ThreadPool& pool) {
      load_weights(checkpoint, parameters, pool, {});
    };
    return run_prompt(options_, {}, fill, tokens)[0].logits;
  }

  TemporaryFolder root_;
  nlohmann::json golden_;
  MergeResult result_;
  ModelOptions options_;
};

INSTANTIATE_TEST_SUITE_P(Lora, MergedAdapter, ::testing::ValuesIn(lora_cases()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

std::vector<float> floats_of(const CheckpointTensor& tensor) {
  std::vector<float> values(tensor.bytes / sizeof(float));
  std::memcpy(values.data(), tensor.data, tensor.bytes);
  return values;
}

TEST_P(MergedAdapter, Logits) {
  const MappedFile file = MappedFile::open(adapter() / "golden.safetensors");
  const auto tensors = parse_safetensors(file.bytes(), "golden.safetensors");
  for (const auto& prompt : golden_["prompts"]) {
    const auto logits = logits_after(prompt["prompt_token_ids"]);
    const auto tensor =
        std::ranges::find(tensors, prompt["logits"].get<std::string>(), &CheckpointTensor::name);
    ASSERT_NE(tensor, tensors.end());
    const std::vector<float> expected = floats_of(*tensor);
    double largest = 0;
    double difference = 0;
    size_t next = 0;
    for (const size_t position : prompt["logit_positions"]) {
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
}

TEST_P(MergedAdapter, GreedyTokens) {
  for (const auto& prompt : golden_["prompts"]) {
    std::vector<int32_t> tokens = prompt["prompt_token_ids"];
    const size_t first = tokens.size() - 1;
    const std::vector<int32_t> output = prompt["output_token_ids"];
    tokens.insert(tokens.end(), output.begin(), output.end() - 1);
    const auto logits = logits_after(tokens);
    for (size_t i = 0; i < output.size(); ++i) {
      const std::vector<float>& row = logits.at(first + i);
      ASSERT_EQ(std::ranges::max_element(row) - row.begin(), output[i]) << "step " << i;
    }
  }
}

// Those that PEFT applies above a tied embedding.
TEST_P(MergedAdapter, OutputLayersAreUntiedWhereTheyMustBe) {
  const std::set<std::string> untied = {"embedding-tied", "head-tied", "saved-tied", "ensure-tied",
                                        "ensure-tied-saved"};
  EXPECT_EQ(result_.untied, untied.contains(GetParam()));
  EXPECT_FALSE(result_.untied && options_.config.tie_word_embeddings);
}

TEST(MergeLora, EndsWhereProgressSaysSo) {
  const TemporaryFolder root;
  MergeOptions merge;
  merge.model = (fs::path(QUIRE_SOURCE_DIR) / "tests/golden/models/qwen3-tied").string();
  merge.adapter = (lora_goldens() / "lora").string();
  merge.out = root.path() / "merged";
  merge.on_progress = [](int64_t, int64_t) { return false; };
  EXPECT_FALSE(merge_lora(merge));
  EXPECT_TRUE(fs::is_empty(root.path()));
}

}  // namespace
}  // namespace quire
