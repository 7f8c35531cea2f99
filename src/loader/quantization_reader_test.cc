#include "loader/quantization_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "quire/error.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Json float8_config() {
  return Json::parse(R"({
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {
      "group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false},
        "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true, "dynamic": true}
      }
    },
    "ignore": ["model.layers.0.mlp.down_proj", "lm_head"],
    "kv_cache_scheme": null,
    "sparsity_config": {},
    "transform_config": {},
    "quantization_status": "compressed"
  })");
}

QuantizationConfig parse_config(const Json& config) {
  return loader_internal::parse_quantization_config(
      loader_internal::JsonFields(config, "config.json", "quantization_config."));
}

std::string error_of(const std::string& path, const Json& value) {
  Json config = float8_config();
  config[Json::json_pointer(path)] = value;
  try {
    parse_config(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantizationConfig, ReadsFloat8WithAScaleAChannel) {
  const QuantizationConfig config = parse_config(float8_config());
  EXPECT_FALSE(config.scheme_of("lm_head").has_value());
  EXPECT_FALSE(config.scheme_of("model.layers.0.mlp.down_proj").has_value());
  EXPECT_TRUE(config.scheme_of("model.layers.1.mlp.down_proj").has_value());
  EXPECT_THAT(config.describe(), HasSubstr("float-quantized"));
  EXPECT_THAT(config.describe(), HasSubstr("but for lm_head, model.layers.0.mlp.down_proj"));
  Json without = float8_config();
  without.erase("ignore");
  without["transform_config"] = nullptr;
  without["config_groups"]["group_0"].erase("input_activations");
  EXPECT_TRUE(parse_config(without).scheme_of("lm_head").has_value());
  EXPECT_THAT(parse_config(without).describe(), ::testing::Not(HasSubstr("but for")));
}

TEST(QuantizationConfig, NamesTheFieldOfWhatItDoesNotRead) {
  const std::string group = "/config_groups/group_0/";
  const struct {
    std::string path;
    Json value;
    std::string message;
  } cases[] = {
      {"/quant_method", "gptq", "quantization_config.quant_method is \"gptq\"; expected"},
      {"/quant_method", nullptr, "quantization_config.quant_method is missing"},
      {"/format", "pack-quantized", "quantization_config.format is \"pack-quantized\"; expected"},
      {"/format", 3, "quantization_config.format is 3; expected a string"},
      {"/kv_cache_scheme", Json::object(), "quantization_config.kv_cache_scheme is {}"},
      {"/sparsity_config/format", "marlin", "sparsity_config.format is \"marlin\""},
      {"/transform_config/config_groups", Json::object(),
       "quantization_config.transform_config is {\"config_groups\":{}}; expected null or {}"},
      {"/transform_config", 3, "quantization_config.transform_config is 3"},
      {"/config_groups/group_1", Json::object(), "config_groups has 2 groups; expected one"},
      {"/config_groups/group_0", nullptr, "config_groups.group_0 is null"},
      {"/config_groups", nullptr, "config_groups is missing"},
      {"/config_groups", Json::object(), "config_groups has 0 groups"},
      {group + "targets", {"Linear", "Embedding"}, "group_0.targets is [\"Linear\",\"Embedding\"]"},
      {group + "targets", nullptr, "group_0.targets is missing"},
      {group + "format", "int-quantized", "group_0.format is \"int-quantized\""},
      {group + "weights", nullptr, "group_0.weights is missing"},
      {group + "weights/num_bits", 4, "weights.num_bits is 4; expected 8"},
      {group + "weights/type", "int", "weights.type is \"int\"; expected \"float\""},
      {group + "weights/strategy", "tensor",
       "weights.strategy is \"tensor\"; expected \"channel\""},
      {group + "weights/strategy", "block", "weights.strategy is \"block\""},
      {group + "weights/symmetric", false, "weights.symmetric is false; expected true"},
      {group + "weights/dynamic", true, "weights.dynamic is true; expected false"},
      {group + "weights/group_size", 128, "weights.group_size is 128; expected null"},
      {group + "weights/block_structure", {128, 128}, "weights.block_structure is [128,128]"},
      {group + "weights/actorder", "group", "weights.actorder is \"group\""},
      {group + "input_activations/dynamic", false, "input_activations.dynamic is missing or false"},
      {group + "input_activations/strategy", "tensor", "input_activations.strategy is \"tensor\""},
      {group + "input_activations/num_bits", 16, "input_activations.num_bits is 16"},
      {group + "output_activations", Json::object(), "group_0.output_activations is {}"},
      {"/ignore", {"re:.*lm_head"}, "quantization_config.ignore holds \"re:.*lm_head\""},
      {"/ignore", {"Linear"}, "quantization_config.ignore holds \"Linear\""},
      {"/ignore", "lm_head", "quantization_config.ignore is \"lm_head\""},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of(c.path, c.value), HasSubstr(c.message)) << c.path;
}

}  // namespace
}  // namespace quire
