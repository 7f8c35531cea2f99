// Quantised checkpoints whose tensors don't fit together: each gets one message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/temporary_folder_test_util.h"
#include "loader/checkpoint.h"
#include "loader/safetensors_test_util.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A case of tests/golden/quantised, to be spoilt.
class QuantisedFiles {
 public:
  explicit QuantisedFiles(const std::string& name) {
    const fs::path folder = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/quantised" / name;
    const Checkpoint checkpoint = Checkpoint::open(folder);
    for (const CheckpointTensor& tensor : checkpoint.tensors()) {
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape,
                         std::string(reinterpret_cast<const char*>(tensor.data), tensor.bytes)});
    }
    config = nlohmann::json::parse(std::ifstream(folder / "config.json"));
  }

  FileTensor& tensor(const std::string& name) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const FileTensor& each) { return each.name == name; });
  }
  void remove(const std::string& name) {
    tensors.erase(tensors.begin() + (&tensor(name) - tensors.data()));
  }
  nlohmann::json& quantization() { return config["quantization_config"]; }

  // What loading a rank of two says; empty where all is well.
  std::string load_error() {
    const TemporaryFolder temporary;
    const fs::path folder = temporary.path();
    std::ofstream(folder / "config.json") << config.dump();
    std::ofstream(folder / "model.safetensors", std::ios::binary) << to_safetensors(tensors);
    try {
      ModelOptions options;
      options.config = load_model_config(folder);
      options.max_model_len = 16;
      options.rank = 1;
      options.size = 2;
      const auto model = create_model(options);
      ThreadPool pool(2);
      load_weights(Checkpoint::open(folder), model->parameters(), pool, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::vector<FileTensor> tensors;
  nlohmann::json config;
};

const std::string kDown = "model.layers.0.mlp.down_proj.";
const std::string kQuery = "model.layers.1.self_attn.q_proj.";

TEST(QuantisedLoad, LoadsWhatIsWhole) {
  for (const char* name : {"gptq-4bit", "gptq-act-order", "awq", "ct-pack-act-order"}) {
    EXPECT_EQ(QuantisedFiles(name).load_error(), "") << name;
  }
}

TEST(QuantisedLoad, GroupsThatAreNotThere) {
  QuantisedFiles files("gptq-act-order");
  const int32_t group = 4;
  std::memcpy(files.tensor(kDown + "g_idx").bytes.data() + 4 * 100, &group, sizeof(group));
  EXPECT_THAT(files.load_error(), HasSubstr(kDown + "g_idx holds 4 at index 100; expected a group "
                                                    "from 0 to 3."));
  files.remove(kDown + "g_idx");
  EXPECT_THAT(files.load_error(), HasSubstr("lack the tensor " + kDown + "g_idx of shape [128]"));
}

// Older checkpoints without act-order may lack it.
TEST(QuantisedLoad, GroupsInOrderNeedNotBeStored) {
  QuantisedFiles files("gptq-4bit");
  files.remove(kDown + "g_idx");
  EXPECT_EQ(files.load_error(), "");
}

TEST(QuantisedLoad, TensorsOfOtherShapes) {
  QuantisedFiles files("gptq-4bit");
  files.quantization()["group_size"] = 64;
  EXPECT_THAT(files.load_error(), HasSubstr("config.json makes its shape [2, 8]"));
  files.quantization()["group_size"] = 32;
  files.quantization()["bits"] = 8;
  EXPECT_THAT(files.load_error(), HasSubstr("config.json makes its shape"));
  QuantisedFiles awq("awq");
  awq.quantization()["quant_method"] = "gptq";
  awq.quantization()["bits"] = 4;
  EXPECT_THAT(awq.load_error(), HasSubstr("config.json makes its shape"));
  QuantisedFiles packed("ct-pack-act-order");
  const int64_t inputs = 127;
  std::memcpy(packed.tensor(kDown + "weight_shape").bytes.data() + 8, &inputs, sizeof(inputs));
  EXPECT_THAT(packed.load_error(),
              HasSubstr(kDown + "weight_shape holds [64, 127]; config.json makes the layer's shape "
                                "[64, 128]"));
}

TEST(QuantisedLoad, TensorsThatAreMissingOrOfOtherTypes) {
  QuantisedFiles files("awq");
  files.tensor(kQuery + "qzeros").dtype = "F32";
  EXPECT_THAT(files.load_error(), HasSubstr(kQuery + "qzeros is [1, 8] F32; expected I32, as "
                                                     "quantization_config"));
  files.remove(kQuery + "qzeros");
  EXPECT_THAT(files.load_error(), HasSubstr("lack the tensor " + kQuery + "qzeros"));
}

TEST(QuantisedLoad, ScalesThatAreNoNumbers) {
  QuantisedFiles files("gptq-4bit");
  const uint16_t nan = 0x7e00;
  std::memcpy(files.tensor(kQuery + "scales").bytes.data() + 2 * 7, &nan, sizeof(nan));
  EXPECT_THAT(files.load_error(), HasSubstr(kQuery + "scales holds nan at index 7; expected scales "
                                                     "that are finite."));
  const uint16_t zero = 0;
  std::memcpy(files.tensor(kQuery + "scales").bytes.data() + 2 * 7, &zero, sizeof(zero));
  EXPECT_EQ(files.load_error(), "");
  std::string& scales = files.tensor(kQuery + "scales").bytes;
  scales.assign(scales.size(), '\0');
  EXPECT_THAT(files.load_error(), HasSubstr(kQuery + "scales holds only zeros; expected scales, of "
                                                     "which some are not zero."));
}

TEST(QuantisedLoad, LayersThatAreStoredOtherwiseThanTheConfigSays) {
  QuantisedFiles dense("ct-pack-4bit");
  dense.quantization()["ignore"].push_back("re:.*down_proj");
  EXPECT_THAT(dense.load_error(),
              HasSubstr("is not one that the layer has: config.json does not quantise this layer; "
                        "expected " +
                        kDown + "weight."));
  QuantisedFiles packed("ct-pack-4bit");
  packed.tensors.push_back({kDown + "weight", "F16", {64, 128}, std::string(2 * 64 * 128, '\0')});
  EXPECT_THAT(packed.load_error(),
              HasSubstr(kDown +
                        "weight ([64, 128] F16) is not one that the layer has: config.json "
                        "quantises this layer; expected " +
                        kDown + "weight_packed."));
}

TEST(QuantisedLoad, GroupsOfLayersThatTheModelLacks) {
  QuantisedFiles files("ct-pack-4bit");
  auto& groups = files.quantization()["config_groups"];
  groups["group_1"] = groups["group_0"];
  groups["group_1"]["targets"] = {"model.layers.2.mlp.down_proj"};
  EXPECT_THAT(
      files.load_error(),
      HasSubstr("quantises the layer model.layers.2.mlp.down_proj, which the model does not "
                "have; expected a linear layer, such as model.layers.0.self_attn.q_proj."));
  groups["group_1"]["targets"] = {"model.layers.1.mlp.down_proj"};
  EXPECT_EQ(files.load_error(), "");
}

// AutoGPTQ gives each layer a bias, if only of zeros.
TEST(QuantisedLoad, BiasesThatTheModelLacksAreZero) {
  QuantisedFiles files("gptq-4bit");
  files.tensors.push_back({kDown + "bias", "F16", {64}, std::string(128, '\0')});
  EXPECT_EQ(files.load_error(), "");
  files.tensors.back().bytes[77] = 1;
  EXPECT_THAT(files.load_error(), HasSubstr(kDown + "bias ([64] F16) is no part of the model"));
}

TEST(QuantisedLoad, LayersOfOneMatrixThatAreStoredDifferently) {
  QuantisedFiles files("ct-pack-4bit");
  auto& groups = files.quantization()["config_groups"];
  groups["group_1"] = groups["group_0"];
  groups["group_1"]["targets"] = {"re:.*k_proj"};
  groups["group_1"]["format"] = "int-quantized";
  groups["group_1"]["weights"] = {{"num_bits", 8}, {"strategy", "channel"}};
  EXPECT_THAT(files.load_error(),
              HasSubstr("stores model.layers.0.self_attn.q_proj as compressed-tensors "
                        "pack-quantized, 4 bits, groups of 32 and model.layers.0.self_attn.k_proj "
                        "as compressed-tensors int-quantized"));
}

TEST(QuantisedLoad, PartsOfAFusedLayerThatCutABlock) {
  QuantisedFiles files("ct-float8");
  auto& weights = files.quantization()["config_groups"]["group_1"]["weights"];
  weights = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {48, 64}}};
  EXPECT_THAT(files.load_error(),
              HasSubstr("qkv_proj: one of the layers that are fused here begins at output 64"));
}

}  // namespace
}  // namespace quire
