#include "engine/merged_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/safetensors_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEmbed = "model.embed_tokens";
constexpr const char* kUp = "model.layers.0.mlp.up_proj";

// Values between -1 and 1 that differ.
std::vector<float> wave(size_t count, float step) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<float>(i) * step);
  return values;
}

FileTensor float_tensor(const std::string& name, const std::vector<int64_t>& shape, float step) {
  size_t count = 1;
  for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
  return {name, "F32", shape, bytes_of(wave(count, step))};
}

template <typename T>
FileTensor narrowed(FileTensor tensor, const std::string& dtype) {
  std::vector<T> values;
  for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, tensor.bytes.data() + i, sizeof(value));
    values.emplace_back(value);
  }
  tensor.dtype = dtype;
  tensor.bytes = bytes_of(values);
  return tensor;
}

std::vector<float> floats_of(const CheckpointTensor& tensor) {
  std::vector<float> values(tensor.bytes / sizeof(float));
  std::memcpy(values.data(), tensor.data, tensor.bytes);
  return values;
}

// A base and an adapter in folders, merged into a third.
class MergedWeights : public ::testing::Test {
 protected:
  Checkpoint merge(const nlohmann::json& config, const std::vector<FileTensor>& base_tensors,
                   const std::vector<FileTensor>& adapter_tensors, bool has_tied_head = false) {
    for (const char* name : {"base", "adapter", "out"}) fs::create_directory(root_.path() / name);
    write(root_.path() / "base/model.safetensors", to_safetensors(base_tensors));
    write(root_.path() / "adapter/adapter_model.safetensors", to_safetensors(adapter_tensors));
    nlohmann::json all = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 3}};
    all.update(config);
    write(root_.path() / "adapter/adapter_config.json", all.dump());
    const Checkpoint base = Checkpoint::open(root_.path() / "base");
    const LoraAdapter adapter = LoraAdapter::open(root_.path() / "adapter");
    ThreadPool pool(2);
    const LoraBase lora_base = {base.tensors(), "BASE", has_tied_head};
    check_lora_fits(adapter, lora_base, pool);
    const MergePlan plan = plan_merge(adapter, lora_base);
    untied_ = plan.untied;
    num_changed_ = plan.num_changed();
    size_t written = 0;
    write_merged(plan, base, root_.path() / "out", EndableLoops(pool),
                 [&](size_t bytes) { written += bytes; });
    EXPECT_EQ(written, plan.bytes());
    return Checkpoint::open(root_.path() / "out");
  }

  static void write(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  TemporaryFolder root_;
  bool untied_ = false;
  int64_t num_changed_ = 0;
};

// More rows than are in memory at a time.
TEST_F(MergedWeights, DoraScalesTheColumnsOfAnEmbedding) {
  constexpr int64_t kVocab = 150'000;
  constexpr int64_t kHidden = 32;
  const std::string embed = kEmbed;
  const Checkpoint merged =
      merge({{"target_modules", {"embed_tokens"}}, {"use_dora", true}},
            {float_tensor(embed + ".weight", {kVocab, kHidden}, 0.7F)},
            {float_tensor(embed + ".lora_embedding_A", {2, kVocab}, 0.3F),
             float_tensor(embed + ".lora_embedding_B", {kHidden, 2}, 0.2F),
             float_tensor(embed + ".lora_magnitude_vector", {kHidden}, 0.11F)});
  const std::vector<float> values = floats_of(*merged.find(embed + ".weight"));
  const std::vector<float> magnitudes = wave(kHidden, 0.11F);
  for (size_t column = 0; column < kHidden; ++column) {
    double squares = 0;
    for (size_t i = column; i < values.size(); i += kHidden)
      squares += double{values[i]} * values[i];
    EXPECT_NEAR(std::sqrt(squares), std::abs(magnitudes[column]), 1e-5) << column;
  }
}

TEST_F(MergedWeights, DoraScalesTheRowsOfALinearLayer) {
  const std::string up = kUp;
  const Checkpoint merged = merge({{"target_modules", {"up_proj"}}, {"use_dora", true}},
                                  {float_tensor(up + ".weight", {100, 8}, 0.7F)},
                                  {float_tensor(up + ".lora_A.weight", {2, 8}, 0.3F),
                                   float_tensor(up + ".lora_B.weight", {100, 2}, 0.2F),
                                   float_tensor(up + ".lora_magnitude_vector", {100}, 0.11F)});
  const std::vector<float> values = floats_of(*merged.find(up + ".weight"));
  const std::vector<float> magnitudes = wave(100, 0.11F);
  for (size_t row = 0; row < magnitudes.size(); ++row) {
    double squares = 0;
    for (size_t i = 0; i < 8; ++i) squares += double{values[8 * row + i]} * values[8 * row + i];
    EXPECT_NEAR(std::sqrt(squares), std::abs(magnitudes[row]), 1e-6) << row;
  }
}

// An adapter as it is before training: its second matrix is zero.
TEST_F(MergedWeights, AZeroAdapterChangesNoBit) {
  const std::string up = kUp;
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    FileTensor weight = float_tensor(up + ".weight", {64, 8}, 0.7F);
    if (dtype == std::string("BF16")) weight = narrowed<BFloat16>(weight, dtype);
    if (dtype == std::string("F16")) weight = narrowed<Float16>(weight, dtype);
    FileTensor zeros = float_tensor(up + ".lora_B.weight", {64, 2}, 0);
    const Checkpoint merged = merge(
        {{"target_modules", {"up_proj"}}}, {weight, float_tensor("model.norm.weight", {8}, 1)},
        {narrowed<BFloat16>(float_tensor(up + ".lora_A.weight", {2, 8}, 0.3F), "BF16"), zeros});
    EXPECT_EQ(num_changed_, 1);
    const CheckpointTensor& got = *merged.find(up + ".weight");
    EXPECT_EQ(got.dtype, dtype);
    EXPECT_EQ(std::memcmp(got.data, weight.bytes.data(), weight.bytes.size()), 0) << dtype;
  }
}

TEST_F(MergedWeights, RoundsOnceToTheTypeOfTheBase) {
  const std::string up = kUp;
  const FileTensor weight = narrowed<BFloat16>(float_tensor(up + ".weight", {4, 2}, 0.7F), "BF16");
  const Checkpoint merged =
      merge({{"target_modules", {"up_proj"}}, {"r", 1}, {"lora_alpha", 1}}, {weight},
            {float_tensor(up + ".lora_A.weight", {1, 2}, 0.3F),
             float_tensor(up + ".lora_B.weight", {4, 1}, 0.2F)});
  const CheckpointTensor& got = *merged.find(up + ".weight");
  for (size_t i = 0; i < 8; ++i) {
    BFloat16 before;
    BFloat16 after;
    std::memcpy(&before, weight.bytes.data() + 2 * i, 2);
    std::memcpy(&after, got.data + 2 * i, 2);
    const float product = wave(4, 0.2F)[i / 2] * wave(2, 0.3F)[i % 2];
    EXPECT_EQ(after.bits, BFloat16(static_cast<float>(before) + product).bits) << i;
  }
}

// A tied output layer stays the embedding's where only the embedding below the adapter was saved.
TEST_F(MergedWeights, ATiedHeadFollowsWhatPeftTiesItTo) {
  const std::string embed = kEmbed;
  const std::vector<FileTensor> base = {float_tensor(embed + ".weight", {6, 4}, 0.7F),
                                        float_tensor("lm_head.weight", {6, 4}, 0.7F)};
  const FileTensor other = float_tensor(embed + ".base_layer.weight", {6, 4}, 0.9F);
  const std::vector<FileTensor> lora = {float_tensor(embed + ".lora_embedding_A", {2, 6}, 0.3F),
                                        float_tensor(embed + ".lora_embedding_B", {4, 2}, 0.2F)};
  const Checkpoint merged =
      merge({{"target_modules", {"embed_tokens"}}}, base, {lora[0], lora[1], other}, true);
  EXPECT_TRUE(untied_);
  EXPECT_EQ(floats_of(*merged.find("lm_head.weight")), wave(24, 0.9F));
  EXPECT_NE(floats_of(*merged.find(embed + ".weight")), wave(24, 0.9F));

  const Checkpoint saved = merge({{"modules_to_save", {"embed_tokens"}}}, base,
                                 {float_tensor(embed + ".weight", {6, 4}, 0.9F)}, true);
  EXPECT_TRUE(untied_);
  EXPECT_EQ(floats_of(*saved.find("lm_head.weight")), wave(24, 0.7F));

  const Checkpoint tied = merge({{"target_modules", {"up_proj"}}}, base, {other}, true);
  EXPECT_FALSE(untied_);
  EXPECT_EQ(tied.find("lm_head.weight"), nullptr);
  EXPECT_EQ(floats_of(*tied.find(embed + ".weight")), wave(24, 0.9F));
}

TEST_F(MergedWeights, RefusesWhatTheBaseCannotHold) {
  const std::string up = kUp;
  const std::vector<FileTensor> lora = {float_tensor(up + ".lora_A.weight", {2, 2}, 0.3F),
                                        float_tensor(up + ".lora_B.weight", {4, 2}, 0.2F),
                                        float_tensor(up + ".lora_B.bias", {4}, 0.1F)};
  const FileTensor weight = float_tensor(up + ".weight", {4, 2}, 0.7F);
  const auto error_of = [&](const nlohmann::json& config, const std::vector<FileTensor>& base,
                            const std::vector<FileTensor>& adapter) -> std::string {
    try {
      merge(config, base, adapter);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  nlohmann::json config = {{"target_modules", {"up_proj"}}};
  EXPECT_NE(error_of(config, {weight}, lora).find("BASE has none that it could be merged into"),
            std::string::npos);
  config["lora_alpha"] = 1e9;
  const std::string error =
      error_of(config, {narrowed<Float16>(weight, "F16")}, {lora[0], lora[1]});
  EXPECT_NE(error.find(up + ".weight: merged it would hold "), std::string::npos) << error;
  EXPECT_NE(error.find("which float16 does not"), std::string::npos) << error;
}

}  // namespace
}  // namespace quire
