#include "loader/lora_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "quire/error.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// A config with these fields in place of, or besides, the usual ones.
LoraConfig lora_config_with(const Json& fields) {
  Json json = {{"peft_type", "LORA"},
               {"task_type", "CAUSAL_LM"},
               {"r", 8},
               {"lora_alpha", 16},
               {"target_modules", {"q_proj", "v_proj"}}};
  json.update(fields);
  return parse_lora_config(json.dump(), "adapter_config.json");
}

std::string lora_config_error(const Json& fields) {
  try {
    lora_config_with(fields);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

constexpr const char* kFirstQ = "model.layers.0.self_attn.q_proj";
constexpr const char* kTenthV = "model.layers.10.self_attn.v_proj";
constexpr const char* kFirstUp = "model.layers.0.mlp.up_proj";

TEST(LoraConfig, NamesAreWholeOrEndAfterADot) {
  const LoraConfig config = lora_config_with(Json::object());
  EXPECT_TRUE(config.targets_module(kFirstQ));
  EXPECT_TRUE(config.targets_module("q_proj"));
  EXPECT_FALSE(config.targets_module("model.layers.0.self_attn.qq_proj"));
  EXPECT_FALSE(config.targets_module(kFirstUp));
}

TEST(LoraConfig, ATiedOutputLayerGoesWithTheEmbedding) {
  const nlohmann::json targets = {"embed_tokens", "v_proj"};
  EXPECT_FALSE(lora_config_with({{"target_modules", targets}}).targets_module("lm_head"));
  const LoraConfig tied =
      lora_config_with({{"target_modules", targets}, {"ensure_weight_tying", true}});
  EXPECT_TRUE(tied.targets_module("lm_head"));
  EXPECT_FALSE(lora_config_with({{"ensure_weight_tying", true}}).targets_module("lm_head"));
}

TEST(LoraConfig, ExpressionsMatchWholeNames) {
  const LoraConfig config =
      lora_config_with({{"target_modules", R"(model\.layers\.\d\..*_proj|lm_head)"}});
  EXPECT_TRUE(config.targets_module(kFirstUp));
  EXPECT_TRUE(config.targets_module("lm_head"));
  EXPECT_FALSE(config.targets_module("lm_head.more"));
  EXPECT_FALSE(config.targets_module(kTenthV));
}

TEST(LoraConfig, AllLinearLeavesOutEmbeddingAndOutputLayer) {
  const LoraConfig config = lora_config_with({{"target_modules", "All-Linear"}});
  EXPECT_TRUE(config.targets_module(kFirstUp));
  EXPECT_FALSE(config.targets_module("lm_head"));
  EXPECT_FALSE(config.targets_module("model.embed_tokens"));
}

TEST(LoraConfig, LayersAndExclusions) {
  const LoraConfig one = lora_config_with({{"layers_to_transform", 10}});
  EXPECT_FALSE(one.targets_module(kFirstQ));
  EXPECT_TRUE(one.targets_module(kTenthV));
  const LoraConfig named = lora_config_with(
      {{"layers_to_transform", {0, 10}}, {"layers_pattern", "layers"}, {"exclude_modules", "v.*"}});
  EXPECT_TRUE(named.targets_module(kFirstQ));
  EXPECT_TRUE(named.targets_module(kTenthV)) << "an expression matches whole names";
  EXPECT_FALSE(lora_config_with({{"layers_to_transform", {0}}, {"layers_pattern", "blocks"}})
                   .targets_module(kFirstQ));
  EXPECT_FALSE(lora_config_with({{"exclude_modules", {"v_proj"}}}).targets_module(kTenthV));
  EXPECT_FALSE(lora_config_with({{"modules_to_save", {"self_attn"}}}).targets_module(kFirstQ));
}

TEST(LoraConfig, RanksAndScalesByPattern) {
  const LoraConfig config =
      lora_config_with({{"rank_pattern", {{"q_proj", 4}, {R"(layers\.0\..*)", 2}}},
                        {"alpha_pattern", {{"^model.layers.10.*", 3}}}});
  EXPECT_EQ(config.rank_of(kFirstQ), 4);
  EXPECT_EQ(config.rank_of(kFirstUp), 2);
  EXPECT_EQ(config.rank_of(kTenthV), 8);
  EXPECT_DOUBLE_EQ(config.scale_of(kFirstQ), 4);
  EXPECT_DOUBLE_EQ(config.scale_of(kTenthV), 3.0 / 8);
  EXPECT_DOUBLE_EQ(lora_config_with({{"use_rslora", true}}).scale_of(kTenthV), 16 / std::sqrt(8));
}

TEST(LoraConfig, Kinds) {
  EXPECT_EQ(lora_config_with(Json::object()).kind(), "LoRA");
  EXPECT_EQ(lora_config_with({{"use_rslora", true}, {"use_dora", true}}).kind(), "rsDoRA");
}

// PEFT writes every field of its config, most of them null.
TEST(LoraConfig, PassesOverWhatIsOff) {
  EXPECT_NO_THROW(lora_config_with({{"alora_invocation_tokens", nullptr},
                                    {"layer_replication", nullptr},
                                    {"loftq_config", Json::object()},
                                    {"qalora_group_size", 16},
                                    {"use_qalora", false},
                                    {"lora_dropout", 0.1},
                                    {"megatron_core", "megatron.core"}}));
}

TEST(LoraConfig, RefusesWhatItDoesNotCompute) {
  const auto expect_error = [](const Json& fields, const char* part) {
    EXPECT_NE(lora_config_error(fields).find(part), std::string::npos) << lora_config_error(fields);
  };
  expect_error({{"peft_type", "ADALORA"}}, "peft_type is \"ADALORA\"; expected \"LORA\"");
  expect_error({{"peft_type", nullptr}}, "peft_type is missing");
  expect_error({{"task_type", "SEQ_CLS"}}, "task_type is \"SEQ_CLS\"");
  expect_error({{"fan_in_fan_out", true}}, "fan_in_fan_out is true");
  expect_error({{"bias", "some"}}, "bias is \"some\"; expected \"none\", \"all\" or \"lora_only\"");
  expect_error({{"trainable_token_indices", {1, 2}}}, "trainable_token_indices is [1,2]");
  expect_error({{"init_lora_weights", "pissa"}}, "init_lora_weights is \"pissa\"");
  expect_error({{"layer_replication", {{0, 2}}}}, "layer_replication is [[0,2]]");
  expect_error({{"alora_invocation_tokens", {1}}}, "alora_invocation_tokens is [1]");
  expect_error({{"r", 0}}, "the field r is 0");
  expect_error({{"lora_alpha", "16"}}, "lora_alpha is \"16\"");
  expect_error({{"rank_pattern", {{"q_proj", nullptr}}}}, "rank_pattern.q_proj is null");
  expect_error({{"rank_pattern", {{"(", 2}}}}, "no regular expression");
  expect_error({{"target_modules", "(q"}}, "no regular expression");
  expect_error({{"target_modules", nullptr}}, "target_modules is missing or empty");
  expect_error({{"target_modules", 3}}, "target_modules is 3");
  expect_error({{"target_modules", "all-linear"}, {"layers_to_transform", {1}}},
               "layers_to_transform goes with target_modules as a list");
}

}  // namespace
}  // namespace quire
