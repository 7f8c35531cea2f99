#include "loader/config_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "quire/error.h"

namespace quire {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

ModelConfig small_config(const std::string& architecture) {
  ModelConfig config;
  config.architecture = architecture;
  config.model_type = "small";
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 24;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = true;
  config.attention_bias = true;
  config.dtype = DType::kBFloat16;
  config.layer_sliding_window = {0, 0, 0};
  config.rope.theta = 123456.0;
  config.rope.original_max_position_embeddings = 4096;
  return config;
}

ModelConfig read_back(const ModelConfig& config) {
  return parse_model_config(config_json(config, {}).dump(), "config.json");
}

TEST(ConfigJson, IsReadBack) {
  for (const char* architecture :
       {"LlamaForCausalLM", "Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    SCOPED_TRACE(architecture);
    const ModelConfig config = small_config(architecture);
    const ModelConfig read = read_back(config);
    EXPECT_EQ(read.architecture, config.architecture);
    EXPECT_EQ(read.model_type, config.model_type);
    EXPECT_EQ(read.vocab_size, config.vocab_size);
    EXPECT_EQ(read.hidden_size, config.hidden_size);
    EXPECT_EQ(read.intermediate_size, config.intermediate_size);
    EXPECT_EQ(read.num_hidden_layers, config.num_hidden_layers);
    EXPECT_EQ(read.num_attention_heads, config.num_attention_heads);
    EXPECT_EQ(read.num_key_value_heads, config.num_key_value_heads);
    EXPECT_EQ(read.head_dim, config.head_dim);
    EXPECT_EQ(read.max_position_embeddings, config.max_position_embeddings);
    EXPECT_EQ(read.rms_norm_eps, config.rms_norm_eps);
    EXPECT_EQ(read.hidden_act, config.hidden_act);
    EXPECT_EQ(read.tie_word_embeddings, config.tie_word_embeddings);
    EXPECT_EQ(read.attention_bias, config.attention_bias);
    EXPECT_EQ(read.mlp_bias, config.mlp_bias);
    EXPECT_EQ(read.dtype, config.dtype);
    EXPECT_EQ(read.layer_sliding_window, config.layer_sliding_window);
    EXPECT_EQ(read.rope, config.rope);
  }
}

TEST(ConfigJson, EachRopeIsReadBack) {
  ModelConfig config = small_config("LlamaForCausalLM");
  config.max_position_embeddings = 8192;
  RopeConfig& rope = config.rope;
  rope.factor = 4;
  rope.partial_rotary_factor = 0.5;
  for (const RopeType type : {RopeType::kLinear, RopeType::kDynamicNtk, RopeType::kYarn,
                              RopeType::kLlama3, RopeType::kLongRope}) {
    rope.type = type;
    const bool counts = type != RopeType::kLinear && type != RopeType::kDynamicNtk;
    rope.original_max_position_embeddings = counts ? 2048 : 8192;
    const bool is_yarn = type == RopeType::kYarn;
    rope.beta_fast = is_yarn ? 16 : RopeConfig().beta_fast;
    rope.mscale = is_yarn ? std::optional(0.7) : std::nullopt;
    rope.truncate = !is_yarn;
    rope.attention_factor =
        counts && type != RopeType::kLlama3 ? std::optional(1.25) : std::nullopt;
    rope.low_freq_factor = type == RopeType::kLlama3 ? 2 : 1;
    if (type == RopeType::kLongRope) {
      rope.short_factor = {1, 1.5, 2, 2.5, 3, 3.5};
      rope.long_factor = {2, 4, 8, 16, 32, 64};
    }
    EXPECT_EQ(read_back(config).rope, rope) << static_cast<int>(type);
  }
}

TEST(ConfigJson, WindowsGoToTheClassThatHasThem) {
  for (const char* architecture : {"Phi3ForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    ModelConfig config = small_config(architecture);
    config.layer_sliding_window = {128, 128, 128};
    EXPECT_THAT(read_back(config).layer_sliding_window, ElementsAre(128, 128, 128));
  }
  ModelConfig llama = small_config("LlamaForCausalLM");
  llama.layer_sliding_window = {128, 128, 128};
  EXPECT_THROW(read_back(llama), Error);  // it has biases
  llama.attention_bias = false;
  EXPECT_EQ(read_back(llama).architecture, "MistralForCausalLM");
  EXPECT_THAT(read_back(llama).layer_sliding_window, Each(128));
}

TEST(ConfigJson, TokensAndDefaultsOfSampling) {
  GenerationConfig generation;
  EXPECT_TRUE(generation_config_json(generation).empty());
  generation.eos_token_ids = {7, 9};
  generation.bos_token_id = 1;
  generation.temperature = 0.5;
  generation.top_k = 20;
  const nlohmann::ordered_json expected = {
      {"bos_token_id", 1}, {"eos_token_id", {7, 9}}, {"temperature", 0.5}, {"top_k", 20}};
  EXPECT_EQ(generation_config_json(generation), expected);
  const auto config = config_json(small_config("LlamaForCausalLM"), generation);
  EXPECT_EQ(config["eos_token_id"], expected["eos_token_id"]);
  EXPECT_EQ(config["bos_token_id"], 1);
}

}  // namespace
}  // namespace quire
