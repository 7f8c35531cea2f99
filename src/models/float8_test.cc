// Checkpoints with float8 weights (scripts/make_float8_checkpoint.py) against the same model with
// the numbers that they stand for in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/safetensors_test_util.h"
#include "loader/weight_loader.h"
#include "models/run_for_test.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const fs::path kFolder = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/float8";

ModelOptions options_of(const fs::path& folder) {
  ModelOptions options;
  options.config = load_model_config(folder);
  options.max_model_len = 64;
  return options;
}

std::vector<std::vector<float>> logits_of(const fs::path& folder, int size) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const FillParameters fill = [&](const ParameterMap& parameters, ThreadPool& pool) {
    load_weights(checkpoint, parameters, pool, {});
  };
  std::vector<int32_t> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % 131);
  const auto ranks = run_prompt(options_of(folder),
                                {.size = size, .chunks = {30, 1, 9}, .threads = 2}, fill, tokens);
  for (const auto& rank : ranks) EXPECT_EQ(rank.logits, ranks[0].logits);
  return ranks[0].logits;
}

// The two differ in where the scale is multiplied: at each weight or at the sum.
TEST(Float8Model, HasTheLogitsOfItsDequantisedWeights) {
  const auto expected = logits_of(kFolder / "dequantised", 1);
  for (const int size : {1, 2}) {
    const auto logits = logits_of(kFolder / "quantised", size);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    double difference = 0;
    for (size_t row = 0; row < logits.size(); ++row) {
      for (size_t v = 0; v < logits[row].size(); ++v) {
        ASSERT_TRUE(std::isfinite(logits[row][v]));
        largest = std::max(largest, std::abs(double{expected[row][v]}));
        difference = std::max(difference, std::abs(double{logits[row][v]} - expected[row][v]));
      }
    }
    EXPECT_LE(difference, 5e-6 * largest) << size << " ranks: " << difference / largest;
  }
}

TEST(Float8Model, CountsItsBytes) {
  const ModelOptions options = options_of(kFolder / "quantised");
  CountedModel counted(options);
  const auto items = counted.model().memory();
  const auto item = [&](std::string_view name) {
    return *std::find_if(items.begin(), items.end(),
                         [&](const MemoryItem& each) { return each.name == name; });
  };
  // Two layers of fused q, k and v: 64 outputs of 32 inputs, and o: 32, in panels of 64 outputs;
  // scales and biases are float32.
  EXPECT_EQ(item("attention weights").bytes, 2u * ((64 + 64) * 32 + (64 + 32) * (4 + 4)));
  EXPECT_EQ(item("attention weights").formats, std::set<std::string>{"fp8 with scales"});
  // gate and up: 144 outputs of 32 inputs. down: 32 of 72, dense in the second layer.
  EXPECT_EQ(item("MLP weights").bytes,
            2u * (192 * 32 + 144 * (4 + 4)) + (64 * 72 + 32 * (4 + 4)) + (64 * 72 * 4 + 32 * 4));
  EXPECT_EQ(item("MLP weights").formats, (std::set<std::string>{"float32", "fp8 with scales"}));
  EXPECT_EQ(item("output layer").formats, std::set<std::string>{"float32"});
  size_t sum = 0;
  for (const MemoryItem& each : items) sum += each.bytes;
  EXPECT_EQ(counted.weight_bytes(), sum);
}

TEST(Float8Model, RoundsNoLayerThatItsConfigLeavesDense) {
  ModelOptions options = options_of(kFolder / "quantised");
  CountedModel as_it_is(options);
  options.rounding = WeightRounding::kFloat8;
  EXPECT_EQ(CountedModel(options).weight_bytes(), as_it_is.weight_bytes());
  // In a model whose config does not mention its layers, only the tables stay.
  options.config.quantization.reset();
  CountedModel rounded(options);
  for (const MemoryItem& item : rounded.model().memory()) {
    if (item.name == "attention weights" || item.name == "MLP weights") {
      EXPECT_EQ(item.formats, std::set<std::string>{"fp8 with scales"}) << item.name;
    } else {
      EXPECT_EQ(item.formats, std::set<std::string>{"float32"}) << item.name;
    }
  }
}

// A GPU's float8 products have 128 inputs or more: these matrices are dequantised to dense ones.
TEST(Float8Model, IsDenseOnAGpu) {
  ModelOptions options = options_of(kFolder / "quantised");
  options.device = {.type = DeviceType::kCuda, .compute_capability = 90};
  options.dtype = DType::kBFloat16;
  CountedModel counted(options);
  for (const MemoryItem& item : counted.model().memory()) {
    EXPECT_EQ(item.formats.count("fp8 with scales"), 0u) << item.name;
  }
}

// The quantised checkpoint, spoilt.
class SpoiltFloat8Model : public ::testing::Test {
 protected:
  SpoiltFloat8Model() {
    const Checkpoint checkpoint = Checkpoint::open(kFolder / "quantised");
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      tensors_.push_back({tensor.name, tensor.dtype, tensor.shape,
                          std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes)});
    }
    config_ = nlohmann::json::parse(std::ifstream(kFolder / "quantised" / "config.json"));
  }

  FileTensor& tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(),
                         [&](const FileTensor& each) { return each.name == name; });
  }

  std::string load_error() {
    const fs::path folder = temporary_.path();
    std::ofstream(folder / "config.json") << config_.dump();
    std::ofstream(folder / "model.safetensors", std::ios::binary) << to_safetensors(tensors_);
    try {
      logits_of(folder, 2);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  std::vector<FileTensor> tensors_;
  nlohmann::json config_;
  const std::string weight_ = "model.layers.0.mlp.up_proj.weight";
  const std::string scale_ = "model.layers.0.mlp.up_proj.weight_scale";
};

TEST_F(SpoiltFloat8Model, IsFineAsItIs) {
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(SpoiltFloat8Model, ScalesOfAnotherShape) {
  tensor(scale_).shape = {72};
  EXPECT_THAT(load_error(),
              HasSubstr(scale_ + " is [72] BF16; config.json makes its shape [72, 1]"));
}

TEST_F(SpoiltFloat8Model, ScalesOfAnotherType) {
  tensor(scale_).dtype = "I16";
  EXPECT_THAT(load_error(), HasSubstr(scale_ + " is [72, 1] I16; expected F32, F16 or BF16"));
}

TEST_F(SpoiltFloat8Model, MissingScales) {
  tensors_.erase(tensors_.begin() + (&tensor(scale_) - tensors_.data()));
  EXPECT_THAT(load_error(), HasSubstr("lack the tensor " + scale_ + " of shape [72, 1]"));
}

TEST_F(SpoiltFloat8Model, ScalesThatAreZeroOrNoNumber) {
  for (const auto& [bits, shown] : {std::pair<uint16_t, const char*>{0x0000, "0"},
                                    {0x8000, "-0"},
                                    {0x7fc0, "nan"},
                                    {0x7f80, "inf"}}) {
    std::memcpy(tensor(scale_).bytes.data() + 2 * 71, &bits, sizeof(bits));
    EXPECT_THAT(load_error(),
                HasSubstr(scale_ + " holds " + shown + " at index 71; expected scales"));
  }
}

TEST_F(SpoiltFloat8Model, AQuantisedLayerThatIsIgnored) {
  config_["quantization_config"]["ignore"].push_back("model.layers.0.self_attn.o_proj");
  EXPECT_THAT(load_error(),
              HasSubstr("model.layers.0.self_attn.o_proj.weight is [32, 32] F8_E4M3; "
                        "expected F32, F16 or BF16, as config.json does not quantise"));
}

TEST_F(SpoiltFloat8Model, ADenseLayerThatIsNotIgnored) {
  config_["quantization_config"]["ignore"] = {"lm_head"};
  EXPECT_THAT(load_error(),
              HasSubstr("model.layers.1.mlp.down_proj.weight is [32, 72] F32; expected "
                        "F8_E4M3, as quantization_config"));
}

TEST_F(SpoiltFloat8Model, PartsOfOneMatrixOfWhichSomeAreIgnored) {
  config_["quantization_config"]["ignore"].push_back("model.layers.1.self_attn.k_proj");
  EXPECT_THAT(load_error(), HasSubstr("quantises model.layers.1.self_attn.q_proj but not "
                                      "model.layers.1.self_attn.k_proj"));
}

// As a tied model's output layer is the embedding, which is not quantised.
TEST_F(SpoiltFloat8Model, AQuantisedCopyOfATiedOutputLayerIsPassedOver) {
  config_["tie_word_embeddings"] = true;
  FileTensor& weight = tensor("lm_head.weight");
  weight.dtype = "F8_E4M3";
  weight.bytes.assign(131 * 32, 0x38);
  tensors_.push_back(
      {"lm_head.weight_scale", "F32", {131, 1}, bytes_of(std::vector<float>(131, 2))});
  for (const bool ignored : {true, false}) {
    config_["quantization_config"]["ignore"] = {"model.layers.1.mlp.down_proj"};
    if (ignored) config_["quantization_config"]["ignore"].push_back("lm_head");
    EXPECT_EQ(load_error(), "no error") << ignored;
  }
}

// The output layer may be quantised too, here as its own dequantised weight: ones times a scale.
TEST_F(SpoiltFloat8Model, AnOutputLayerThatIsNotIgnored) {
  config_["quantization_config"]["ignore"] = {"model.layers.1.mlp.down_proj"};
  EXPECT_THAT(load_error(), HasSubstr("lm_head.weight is [131, 32] F32; expected F8_E4M3"));
  FileTensor& weight = tensor("lm_head.weight");
  weight.dtype = "F8_E4M3";
  weight.bytes.assign(131 * 32, 0x38);
  tensors_.push_back(
      {"lm_head.weight_scale", "F32", {131, 1}, bytes_of(std::vector<float>(131, 2))});
  EXPECT_EQ(load_error(), "no error");
}

}  // namespace
}  // namespace quire
