// Every published format against what its numbers stand for, and what transformers computes with
// them (scripts/make_quantised_goldens.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "loader/checkpoint.h"
#include "loader/safetensors.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

fs::path quantised_goldens() {
  return fs::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised";
}

std::vector<std::string> quantised_case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(quantised_goldens())) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json read_golden(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(quantised_goldens() / name / "golden.json"));
}

ModelOptions quantised_options(const std::string& name) {
  ModelOptions options;
  options.config = load_model_config(quantised_goldens() / name);
  options.max_model_len = 64;
  return options;
}

// FNV-1a of the numbers' bytes.
class NumbersHash {
 public:
  void add(std::span<const float> numbers) {
    for (const std::byte byte : std::as_bytes(numbers)) {
      value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  std::string text() const { return fmt::format("{:016x}", value_); }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// The parts of each matrix of the model, by their names in the checkpoint, in order.
std::map<MatrixParameter*, std::vector<std::string>> modules_of(const ParameterMap& parameters) {
  std::map<MatrixParameter*, std::map<size_t, std::string>> modules;
  for (const ParameterMap::Target& target : parameters.targets()) {
    auto* matrix = dynamic_cast<MatrixParameter*>(target.parameter);
    if (matrix == nullptr) continue;
    modules[matrix][target.part] = target.name.substr(0, target.name.rfind('.'));
  }
  std::map<MatrixParameter*, std::vector<std::string>> result;
  for (const auto& [matrix, parts] : modules) {
    for (const auto& [part, name] : parts) {
      // A module that is all parts of its matrix is one.
      if (result[matrix].empty() || result[matrix].back() != name) result[matrix].push_back(name);
    }
  }
  return result;
}

class QuantisedGolden : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedGolden, ::testing::ValuesIn(quantised_case_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(QuantisedGolden, WeightsBitForBit) {
  const Checkpoint checkpoint = Checkpoint::open(quantised_goldens() / GetParam());
  const auto model = create_model(quantised_options(GetParam()));
  const ParameterMap parameters = model->parameters();
  ThreadPool pool(2);
  load_weights(checkpoint, parameters, pool, {});
  const auto weights = read_golden(GetParam()).at("weights");
  size_t checked = 0;
  for (const auto& [matrix, modules] : modules_of(parameters)) {
    const ops::Weight& weight = matrix->weight();
    std::vector<float> row(static_cast<size_t>(weight.k()));
    int64_t first_row = 0;
    for (const std::string& module : modules) {
      if (!weights.contains(module)) continue;
      const auto& golden = weights.at(module);
      const int64_t rows = golden.at("shape").at(0);
      ASSERT_EQ(golden.at("shape").at(1), weight.k());
      NumbersHash hash;
      for (int64_t i = first_row; i < first_row + rows; ++i) {
        weight.unpack_row(i, row.data());
        hash.add(row);
      }
      EXPECT_EQ(hash.text(), golden.at("fnv1a").get<std::string>()) << module;
      first_row += rows;
      ++checked;
    }
  }
  EXPECT_EQ(checked, weights.size());
}

TEST_P(QuantisedGolden, LogitsOnOneRankAndTwo) {
  const Checkpoint checkpoint = Checkpoint::open(quantised_goldens() / GetParam());
  const FillParameters fill = [&](const ParameterMap& parameters, ThreadPool& pool) {
    load_weights(checkpoint, parameters, pool, {});
  };
  const std::vector<int32_t> tokens = read_golden(GetParam()).at("prompt_token_ids");
  const MappedFile file = MappedFile::open(quantised_goldens() / GetParam() / "golden.safetensors");
  const CheckpointTensor expected = parse_safetensors(file.bytes(), "golden.safetensors").at(0);
  for (const int size : {1, 2}) {
    const auto ranks =
        run_prompt(quantised_options(GetParam()), {.size = size, .threads = 2}, fill, tokens);
    double largest = 0;
    double difference = 0;
    const std::byte* next = expected.data;
    for (const std::vector<float>& row : ranks[0].logits) {
      ASSERT_EQ(static_cast<int64_t>(row.size()), expected.shape.at(1));
      for (const float got : row) {
        float wanted;
        std::memcpy(&wanted, next, sizeof(wanted));
        next += sizeof(wanted);
        ASSERT_TRUE(std::isfinite(got));
        largest = std::max(largest, std::abs(double{wanted}));
        difference = std::max(difference, std::abs(double{got} - wanted));
      }
    }
    EXPECT_EQ(next, expected.data + expected.bytes);
    EXPECT_LE(difference, 2e-5 * largest) << size << " ranks: " << difference / largest;
  }
}

TEST_P(QuantisedGolden, RunsWithRandomWeightsAndOnTwoStages) {
  const FillParameters random = [](const ParameterMap& parameters, ThreadPool& pool) {
    fill_dummy_weights(parameters, 7, pool, {});
  };
  const std::vector<int32_t> tokens = read_golden(GetParam()).at("prompt_token_ids");
  const auto whole = run_prompt(quantised_options(GetParam()), {}, random, tokens);
  const auto stages =
      run_prompt(quantised_options(GetParam()), {.stage_ends = {1, 2}}, random, tokens);
  EXPECT_EQ(whole[0].logits, stages[0].logits);
  for (const float logit : whole[0].logits.back()) ASSERT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace quire
