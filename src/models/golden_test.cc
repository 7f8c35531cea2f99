// Every family and RoPE type against what Hugging Face's transformers computes
// (scripts/make_model_goldens.py).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/safetensors.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path goldens() {
  return fs::path(QUIRE_SOURCE_DIR) / "tests/golden/models";
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(goldens())) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct GoldenPrompt {
  std::vector<int32_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<std::vector<float>> logits;  // one row a position
  std::vector<int32_t> output_ids;
};

struct GoldenCase {
  fs::path folder;
  ModelOptions options;
  std::vector<GoldenPrompt> prompts;
};

std::vector<std::vector<float>> rows_of(const CheckpointTensor& tensor) {
  const auto columns = static_cast<size_t>(tensor.shape.at(1));
  std::vector<std::vector<float>> rows(static_cast<size_t>(tensor.shape.at(0)),
                                       std::vector<float>(columns));
  for (size_t r = 0; r < rows.size(); ++r) {
    std::memcpy(rows[r].data(), tensor.data + r * columns * sizeof(float), columns * sizeof(float));
  }
  return rows;
}

GoldenCase load_case(const std::string& name) {
  GoldenCase result{.folder = goldens() / name, .options = {}, .prompts = {}};
  result.options.config = load_model_config(result.folder);
  const auto json = nlohmann::json::parse(std::ifstream(result.folder / "golden.json"));
  result.options.max_model_len = json.at("max_model_len");
  const MappedFile file = MappedFile::open(result.folder / "golden.safetensors");
  const auto tensors = parse_safetensors(file.bytes(), "golden.safetensors");
  for (const auto& prompt : json.at("prompts")) {
    const auto tensor =
        std::find_if(tensors.begin(), tensors.end(), [&](const CheckpointTensor& candidate) {
          return candidate.name == prompt.at("logits").get<std::string>();
        });
    if (tensor == tensors.end()) throw Error(name + ": golden.safetensors lacks a prompt's logits");
    result.prompts.push_back({prompt.at("prompt_token_ids").get<std::vector<int32_t>>(),
                              prompt.at("logit_positions").get<std::vector<int64_t>>(),
                              rows_of(*tensor),
                              prompt.at("output_token_ids").get<std::vector<int32_t>>()});
  }
  return result;
}

FillParameters from_checkpoint(const Checkpoint& checkpoint) {
  return [&checkpoint](const ParameterMap& parameters, ThreadPool& pool) {
    load_weights(checkpoint, parameters, pool, {});
  };
}

void expect_close(const std::vector<std::vector<float>>& got, const GoldenPrompt& golden) {
  double largest = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < golden.positions.size(); ++i) {
    const std::vector<float>& row = got.at(static_cast<size_t>(golden.positions[i]));
    ASSERT_EQ(row.size(), golden.logits[i].size());
    for (size_t v = 0; v < row.size(); ++v) {
      ASSERT_FALSE(std::isnan(row[v]));
      largest = std::max(largest, std::abs(static_cast<double>(golden.logits[i][v])));
      difference =
          std::max(difference, std::abs(static_cast<double>(row[v]) - golden.logits[i][v]));
    }
  }
  EXPECT_LE(difference, 2e-5 * largest) << "relative " << difference / largest;
}

class Golden : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  // Whether the case's model can be split over the test's ranks; where not, it must say so.
  bool splits(const GoldenCase& golden) {
    ModelOptions options = golden.options;
    options.size = std::get<1>(GetParam());
    if (options.config.num_attention_heads % options.size == 0) return true;
    EXPECT_THROW(create_model(options), Error);
    return false;
  }
};

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Combine(::testing::ValuesIn(case_names()),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_tp" + std::to_string(std::get<1>(info.param));
                         });

TEST_P(Golden, LogitsOfAWholePrompt) {
  const GoldenCase golden = load_case(std::get<0>(GetParam()));
  if (!splits(golden)) return;
  const Checkpoint checkpoint = Checkpoint::open(golden.folder);
  for (const GoldenPrompt& prompt : golden.prompts) {
    SCOPED_TRACE(testing::Message() << "prompt of " << prompt.token_ids.size());
    const auto ranks = run_prompt(golden.options, {.size = std::get<1>(GetParam())},
                                  from_checkpoint(checkpoint), prompt.token_ids);
    expect_close(ranks[0].logits, prompt);
    for (const auto& rank : ranks) EXPECT_EQ(rank.logits, ranks[0].logits);
  }
}

// Decoding one token a step from the cache, given each golden token in turn.
TEST_P(Golden, TokensOfGreedyDecoding) {
  const GoldenCase golden = load_case(std::get<0>(GetParam()));
  if (!splits(golden)) return;
  const Checkpoint checkpoint = Checkpoint::open(golden.folder);
  for (const GoldenPrompt& prompt : golden.prompts) {
    if (prompt.output_ids.empty()) continue;
    SCOPED_TRACE(testing::Message() << "prompt of " << prompt.token_ids.size());
    std::vector<int32_t> tokens = prompt.token_ids;
    tokens.insert(tokens.end(), prompt.output_ids.begin(), prompt.output_ids.end() - 1);
    std::vector<int64_t> chunks(prompt.output_ids.size(), 1);
    chunks[0] = static_cast<int64_t>(prompt.token_ids.size());
    const auto ranks =
        run_prompt(golden.options, {.size = std::get<1>(GetParam()), .chunks = chunks},
                   from_checkpoint(checkpoint), tokens);
    for (size_t i = 0; i < prompt.output_ids.size(); ++i) {
      const auto& row = ranks[0].logits.at(prompt.token_ids.size() - 1 + i);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      ASSERT_EQ(best, prompt.output_ids[i]) << "step " << i;
    }
  }
}

}  // namespace
}  // namespace quire
