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

WeightScheme scheme_of(const QuantizationConfig& config, const std::string& layer) {
  return config.scheme_of(layer).value_or(WeightScheme{.name = "dense"});
}

std::string described(const QuantizationConfig& config, const std::string& layer) {
  return scheme_of(config, layer).describe();
}

TEST(QuantizationConfig, ReadsFloat8WithAScaleAChannel) {
  const QuantizationConfig config = parse_config(float8_config());
  EXPECT_FALSE(config.scheme_of("lm_head"));
  EXPECT_FALSE(config.scheme_of("model.layers.0.mlp.down_proj"));
  EXPECT_FALSE(config.scheme_of("model.embed_tokens"));
  EXPECT_TRUE(config.scheme_of("model.layers.1.mlp.down_proj"));
  EXPECT_EQ(config.describe(std::vector<std::string>{"model.layers.0.mlp.down_proj",
                                                     "model.layers.1.mlp.down_proj", "lm_head"}),
            "compressed-tensors float-quantized, float8 e4m3, a scale for each output; 1 of 3 "
            "layers, not model.layers.0.mlp.down_proj, lm_head");
  Json without = float8_config();
  without.erase("ignore");
  without["transform_config"] = nullptr;
  without["config_groups"]["group_0"].erase("input_activations");
  EXPECT_TRUE(parse_config(without).scheme_of("lm_head"));
  EXPECT_EQ(parse_config(without).describe({}),
            "compressed-tensors float-quantized, float8 e4m3, a scale for each output");
}

TEST(QuantizationConfig, ReadsEachGranularityOfCompressedTensors) {
  const auto weights = [](const Json& changes) {
    Json config = float8_config();
    config["ignore"] = Json::array();
    config["config_groups"]["group_0"].erase("input_activations");
    config["format"] = changes.value("type", "int") == "float" ? "float-quantized"
                       : changes.contains("packed")            ? "pack-quantized"
                                                               : "int-quantized";
    config["config_groups"]["group_0"]["weights"] = changes;
    return scheme_of(parse_config(config), "a.q_proj");
  };
  EXPECT_EQ(weights({{"num_bits", 8}, {"strategy", "tensor"}}),
            (WeightScheme{.name = "compressed-tensors int-quantized",
                          .layout = WeightLayout::kInt8,
                          .group_outputs = 0}));
  EXPECT_EQ(weights({{"num_bits", 8}, {"strategy", "channel"}, {"symmetric", false}}),
            (WeightScheme{.name = "compressed-tensors int-quantized",
                          .layout = WeightLayout::kInt8,
                          .symmetric = false}));
  EXPECT_EQ(weights({{"num_bits", 8},
                     {"type", "float"},
                     {"strategy", "block"},
                     {"block_structure", {128, 64}}}),
            (WeightScheme{.name = "compressed-tensors float-quantized",
                          .layout = WeightLayout::kFloat8,
                          .group_outputs = 128,
                          .group_inputs = 64}));
  const WeightScheme packed{.name = "compressed-tensors pack-quantized",
                            .layout = WeightLayout::kPacked,
                            .bits = 4,
                            .group_inputs = 128};
  EXPECT_EQ(weights({{"packed", 1}, {"num_bits", 4}, {"strategy", "group"}, {"group_size", 128}}),
            packed);
  // The strategy as it is inferred; an order of activations that leaves nothing in the file.
  EXPECT_EQ(weights({{"packed", 1}, {"num_bits", 4}, {"group_size", 128}, {"actorder", "static"}}),
            packed);
  WeightScheme ordered = packed;
  ordered.act_order = true;
  ordered.symmetric = false;
  EXPECT_EQ(weights({{"packed", 1},
                     {"num_bits", 4},
                     {"group_size", 128},
                     {"symmetric", false},
                     {"actorder", "group"}}),
            ordered);
  EXPECT_EQ(ordered.describe(),
            "compressed-tensors pack-quantized, 4 bits, groups of 128, zero points, act-order");
  EXPECT_EQ(weights({{"packed", 1}, {"num_bits", 8}, {"group_size", -1}}).group_inputs, 0);
}

// The name that compressed-tensors gives to a byte for a number in other groups than its other
// formats have. The type says which numbers these are, group by group.
TEST(QuantizationConfig, ReadsNaiveNumbersByTheirType) {
  Json config = float8_config();
  config["format"] = "naive-quantized";
  Json& groups = config["config_groups"];
  groups["group_0"]["weights"]["strategy"] = "group";
  groups["group_0"]["weights"]["group_size"] = 128;
  groups["group_1"] = groups["group_0"];
  groups["group_1"]["weights"]["type"] = "int";
  groups["group_1"]["targets"] = {"re:.*down_proj$"};
  const QuantizationConfig read = parse_config(config);
  EXPECT_EQ(scheme_of(read, "model.layers.0.self_attn.q_proj"),
            (WeightScheme{.name = "compressed-tensors naive-quantized",
                          .layout = WeightLayout::kFloat8,
                          .group_inputs = 128}));
  EXPECT_EQ(scheme_of(read, "model.layers.1.mlp.down_proj"),
            (WeightScheme{.name = "compressed-tensors naive-quantized",
                          .layout = WeightLayout::kInt8,
                          .group_inputs = 128}));
}

// Ignored layers come first, then names, regular expressions and classes.
TEST(QuantizationConfig, ReadsSeveralGroupsAndRegularExpressions) {
  Json config = float8_config();
  Json other = config["config_groups"]["group_0"];
  other["format"] = "int-quantized";
  other["weights"]["type"] = "int";
  config["config_groups"]["group_1"] = other;
  config["config_groups"]["group_1"]["targets"] = {"re:.*down_proj$", "model.layers.3.mlp.up_proj"};
  config["config_groups"]["group_2"] = other;
  config["config_groups"]["group_2"]["targets"] = {"model.layers.4.mlp.down_proj",
                                                   "model.layers.5.mlp.down_proj"};
  config["config_groups"]["group_2"]["weights"]["strategy"] = "tensor";
  config["ignore"] = {"lm_head", "re:.*[.]5[.]mlp.*", "re:model.layers.0[.]"};
  const QuantizationConfig read = parse_config(config);
  const std::string int8 = "compressed-tensors int-quantized, 8 bits, ";
  EXPECT_EQ(described(read, "model.layers.2.mlp.down_proj"), int8 + "a scale for each output");
  EXPECT_EQ(described(read, "model.layers.3.mlp.up_proj"), int8 + "a scale for each output");
  EXPECT_EQ(described(read, "model.layers.4.mlp.down_proj"), int8 + "one scale");
  EXPECT_EQ(scheme_of(read, "model.layers.2.mlp.up_proj").layout, WeightLayout::kFloat8);
  for (const char* dense : {"lm_head", "model.layers.5.mlp.down_proj", "model.layers.5.mlp.up_proj",
                            "model.layers.0.self_attn.q_proj"}) {
    EXPECT_FALSE(read.scheme_of(dense)) << dense;
  }
  // Matched from the start, as in Python, and not to the end.
  config["ignore"] = {"re:down_proj", "re:model.layers.2"};
  EXPECT_TRUE(parse_config(config).scheme_of("model.layers.3.mlp.down_proj"));
  EXPECT_FALSE(parse_config(config).scheme_of("model.layers.22.mlp.down_proj"));
}

Json gptq_config() {
  return Json::parse(R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true,
                         "sym": true, "checkpoint_format": "gptq", "damp_percent": 0.01})");
}

TEST(QuantizationConfig, ReadsGptq) {
  Json config = gptq_config();
  const WeightScheme scheme{.name = "GPTQ",
                            .layout = WeightLayout::kGptq,
                            .bits = 4,
                            .group_inputs = 128,
                            .act_order = true,
                            .zeros_less_one = true};
  EXPECT_EQ(scheme_of(parse_config(config), "a.q_proj"), scheme);
  EXPECT_EQ(scheme.describe(), "GPTQ, 4 bits, groups of 128, act-order");
  EXPECT_FALSE(parse_config(config).scheme_of("lm_head"));
  EXPECT_FALSE(parse_config(config).scheme_of("model.embed_tokens"));
  config["lm_head"] = true;
  EXPECT_TRUE(parse_config(config).scheme_of("lm_head"));
  config["checkpoint_format"] = "gptq_v2";
  config["group_size"] = -1;
  config["bits"] = 8;
  config["sym"] = false;
  EXPECT_EQ(described(parse_config(config), "a.q_proj"),
            "GPTQ, 8 bits, a scale for each output, zero points, act-order");
  EXPECT_FALSE(scheme_of(parse_config(config), "a.q_proj").zeros_less_one);
}

TEST(QuantizationConfig, ReadsWhichLayersGptqQuantises) {
  Json config = gptq_config();
  config["modules_in_block_to_quantize"] = {{"self_attn.q_proj", "self_attn.k_proj"},
                                            {"mlp.down_proj"}};
  EXPECT_TRUE(parse_config(config).scheme_of("model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(parse_config(config).scheme_of("model.layers.1.mlp.up_proj"));
  config.erase("modules_in_block_to_quantize");
  config["dynamic"] = {{"-:.*\\.0\\..*", Json::object()},
                       {".*down_proj", {{"bits", 8}, {"group_size", 32}, {"mse", 2.0}}}};
  const QuantizationConfig read = parse_config(config);
  EXPECT_FALSE(read.scheme_of("model.layers.0.mlp.down_proj"));
  EXPECT_EQ(described(read, "model.layers.1.mlp.down_proj"),
            "GPTQ, 8 bits, groups of 32, act-order");
  EXPECT_EQ(described(read, "model.layers.1.mlp.up_proj"),
            "GPTQ, 4 bits, groups of 128, act-order");
}

TEST(QuantizationConfig, ReadsAwq) {
  const Json config = Json::parse(R"({"quant_method": "awq", "bits": 4, "group_size": 64,
    "zero_point": true, "version": "gemm", "modules_to_not_convert": ["self_attn.o"]})");
  const QuantizationConfig read = parse_config(config);
  EXPECT_EQ(described(read, "model.layers.0.mlp.up_proj"),
            "AWQ, 4 bits, groups of 64, zero points");
  EXPECT_FALSE(read.scheme_of("model.layers.0.self_attn.o_proj"));
  EXPECT_FALSE(read.scheme_of("lm_head"));
  const Json older = Json::parse(R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 128,
    "zero_point": true, "version": "GEMM"})");
  EXPECT_EQ(scheme_of(parse_config(older), "a.q_proj").group_inputs, 128);
}

TEST(QuantizationConfig, ReadsFp8) {
  const QuantizationConfig blocks = parse_config(Json::parse(R"({"quant_method": "fp8",
    "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]})"));
  EXPECT_EQ(described(blocks, "a.q_proj"), "fp8, float8 e4m3, blocks of 128 x 128");
  EXPECT_EQ(scheme_of(blocks, "a.q_proj").scale_leaf, "weight_scale_inv");
  EXPECT_FALSE(blocks.scheme_of("lm_head"));
  const QuantizationConfig whole = parse_config(Json::parse(R"({"quant_method": "fp8",
    "activation_scheme": "static",
    "ignored_layers": ["re:.*lm_head", "model.layers.1", "o_proj", "model.layers.*.mlp.up"]})"));
  EXPECT_EQ(described(whole, "model.layers.0.mlp.down_proj"), "fp8, float8 e4m3, one scale");
  EXPECT_EQ(described(whole, "model.layers.11.mlp.down_proj"), "fp8, float8 e4m3, one scale");
  EXPECT_TRUE(whole.scheme_of("model.layers.0.mlp.up_proj"));
  for (const char* dense :
       {"lm_head", "model.layers.1.mlp.down_proj", "model.layers.0.self_attn.o_proj"}) {
    EXPECT_FALSE(whole.scheme_of(dense)) << dense;
  }
}

std::string error_of_config(const Json& config) {
  try {
    parse_config(config).scheme_of("model.layers.0.mlp.down_proj_____________________________");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantizationConfig, NamesTheFieldOfOtherMethods) {
  const struct {
    Json changes;
    std::string message;
  } cases[] = {
      {{{"bits", 3}}, "quantization_config.bits is 3; expected 4 or 8"},
      {{{"bits", nullptr}}, "quantization_config.bits is missing"},
      {{{"group_size", 0}}, "quantization_config.group_size is 0; expected a number of inputs"},
      {{{"group_size", nullptr}}, "quantization_config.group_size is missing"},
      {{{"group_size", -2}}, "quantization_config.group_size is -2"},
      {{{"checkpoint_format", "marlin"}}, "checkpoint_format is \"marlin\"; expected \"gptq\""},
      {{{"desc_act", 1}}, "quantization_config.desc_act is 1; expected true or false"},
      {{{"pack_dtype", "int16"}}, "quantization_config.pack_dtype is \"int16\""},
      {{{"modules_in_block_to_quantize", {1}}}, "expected lists of layers' names"},
      {{{"modules_in_block_to_quantize", Json::array()}}, "expected null or lists"},
      {{{"dynamic", {{"(", Json::object()}}}},
       "dynamic holds \"(\", which is no regular expression"},
      {{{"dynamic", {{"a", {{"bits", 5}}}}}}, "quantization_config.dynamic.a.bits is 5"},
      {{{"dynamic", {{"a", {{"format", "awq"}}}}}}, "dynamic.a.format is \"awq\""},
      {{{"dynamic", {{"(.*)*(.*)*(.*)*[!?]", Json::object()}}}}, "match limit exceeded"},
      {{{"quant_method", "awq"}, {"bits", 8}}, "quantization_config.bits is 8; expected 4"},
      {{{"quant_method", "awq"}, {"version", "gemv"}}, "version is \"gemv\"; expected \"gemm\""},
      {{{"quant_method", "awq"}, {"backend", "llm-awq"}}, "backend is \"llm-awq\""},
      {{{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "fmt is \"e5m2\"; expected \"e4m3\""},
      {{{"quant_method", "fp8"}, {"scale_fmt", "ue8m0"}}, "scale_fmt is \"ue8m0\""},
      {{{"quant_method", "fp8"}, {"activation_scheme", "token"}}, "activation_scheme is"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {128}}}, "weight_block_size is [128]"},
      {{{"quant_method", "fp8"}, {"weight_block_size", {0, 1}}}, "weight_block_size is 0"},
      {{{"quant_method", "bitsandbytes"}},
       "quant_method is \"bitsandbytes\"; expected one of \"gptq\", \"awq\", "
       "\"compressed-tensors\", \"fp8\""},
  };
  for (const auto& c : cases) {
    Json config = gptq_config();
    config.update(c.changes);
    EXPECT_THAT(error_of_config(config), HasSubstr(c.message)) << c.changes;
  }
}

TEST(QuantizationConfig, BoundsItsPatterns) {
  Json config = float8_config();
  config["ignore"] = std::vector<std::string>(3000, "re:a");
  EXPECT_THAT(error_of_config(config), HasSubstr("has 3000 patterns of layers"));
  config["ignore"] = {"re:" + std::string(5000, 'a')};
  EXPECT_THAT(error_of_config(config), HasSubstr("a regular expression of 5000 bytes"));
  config["ignore"] = {"re:" + std::string(100, '(') + std::string(100, ')')};
  EXPECT_THAT(error_of_config(config), HasSubstr("which is no regular expression"));
  config["ignore"] = std::vector<std::string>(100000, "model.layers.0.mlp.up_proj");
  EXPECT_EQ(error_of_config(config), "no error");
  config["ignore"] = std::vector<std::string>(1500, "re:a");
  std::vector<std::string> targets;
  for (int i = 0; i < 1000; ++i) targets.push_back("model.layers." + std::to_string(i));
  config["config_groups"]["group_0"]["targets"] = targets;
  EXPECT_THAT(error_of_config(config), HasSubstr("names 1000 targets, and `ignore` 1500 patterns"));
}

TEST(QuantizationConfig, TheCommonFormatIsATextWhereGroupsHaveTheirOwn) {
  Json config = float8_config();
  config["config_groups"]["group_0"]["format"] = "float-quantized";
  config["format"] = "mixed-precision";
  EXPECT_EQ(error_of_config(config), "no error");
  config["format"] = 3;
  EXPECT_THAT(error_of_config(config), HasSubstr("format is 3; expected a string"));
}

TEST(QuantizationConfig, NaiveNumbersAreOfOneOfTwoTypes) {
  Json config = float8_config();
  config["format"] = "naive-quantized";
  config["config_groups"]["group_0"]["weights"]["type"] = "complex";
  EXPECT_THAT(error_of_config(config),
              HasSubstr("expected \"int\" or \"float\" of the format naive-quantized"));
}

TEST(QuantizationConfig, NamesTheFieldOfWhatItDoesNotRead) {
  const std::string group = "/config_groups/group_0/";
  const struct {
    std::string path;
    Json value;
    std::string message;
  } cases[] = {
      {"/quant_method", nullptr, "quantization_config.quant_method is missing"},
      {"/format", 3, "quantization_config.format is 3; expected a string"},
      {"/sparsity_config/format", "marlin", "sparsity_config.format is \"marlin\""},
      {"/transform_config/config_groups", Json::object(),
       "quantization_config.transform_config is {\"config_groups\":{}}; expected null or {}"},
      {"/transform_config", 3, "quantization_config.transform_config is 3"},
      {"/config_groups/group_0", nullptr, "config_groups.group_0 is null"},
      {"/config_groups", nullptr, "config_groups is missing or empty"},
      {"/config_groups", Json::object(), "config_groups is missing or empty"},
      {"/format", "marlin-24", "quantization_config.format is \"marlin-24\"; expected"},
      {"/format", "int-quantized", "weights.type is \"float\"; expected \"int\" of the format"},
      {"/format", nullptr, "quantization_config.format is missing"},
      {"/quantization_status", "frozen", "quantization_status is \"frozen\""},
      {group + "format", "nvfp4-pack-quantized", "group_0.format is \"nvfp4-pack-quantized\""},
      {group + "weights/strategy", "tensor_group", "weights.strategy is \"tensor_group\""},
      {group + "weights",
       {{"num_bits", 8}, {"type", "float"}, {"strategy", "attn_head"}, {"group_size", 64}},
       "weights.strategy is \"attn_head\"; expected"},
      {group + "weights/strategy", "group", "weights.group_size is missing"},
      {"/ignore", {"re:(lm_head"}, "quantization_config.ignore holds \"(lm_head\", which is no"},
      {group + "targets", nullptr, "group_0.targets is missing"},
      {group + "weights/num_bits", 4, "weights.num_bits is 4; expected 8"},
      {group + "weights/type", "int", "weights.type is \"int\"; expected \"float\""},
      {group + "weights/strategy", "block", "weights.block_structure is missing or not"},
      {group + "weights/symmetric", false, "weights.symmetric is false; expected true"},
      {group + "weights/dynamic", true, "weights.dynamic is true; expected false"},
      {group + "weights/group_size", 128, "weights.group_size is 128; expected null"},
      {group + "weights/block_structure", {128, 128}, "weights.block_structure is [128,128]"},
      {group + "weights/actorder", "group", "weights.actorder is \"group\""},
      {"/ignore", "lm_head", "quantization_config.ignore is \"lm_head\""},
  };
  for (const auto& c : cases)
    EXPECT_THAT(error_of(c.path, c.value), HasSubstr(c.message)) << c.path;
}

}  // namespace
}  // namespace quire
