#include "runner/model_support.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

// A layer's products have 8192 weights (q, k and v), 4096 (o), 16384 (gate and up) and 8192 (down).
ModelConfig llama(const std::string& quantization) {
  const std::string text =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16",
          "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "vocab_size": 96,
          "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
          "tie_word_embeddings": false)";
  return parse_model_config(text + quantization + "}", "config.json");
}

std::string packed_but(const std::string& module) {
  return R"(, "quantization_config": {"quant_method": "compressed-tensors",
      "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head", ")" +
         module + R"("], "config_groups": {"group_0": {"targets": ["Linear"], "weights":
      {"num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": true}}}})";
}

constexpr const char* kGptq =
    R"(, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32,
        "desc_act": false, "sym": true})";

TEST(IntegerShare, IsAllOrNothingWhereTheLayersAreAlike) {
  EXPECT_EQ(integer_share(llama(""), DType::kBFloat16, 0), 0);
  EXPECT_EQ(integer_share(llama(""), DType::kBFloat16, 8), 1);
  EXPECT_EQ(integer_share(llama(kGptq), DType::kBFloat16, 0), 1);
}

TEST(IntegerShare, IsNothingWhereActivationsStayFloat32) {
  EXPECT_EQ(integer_share(llama(""), DType::kFloat32, 4), 0);
  EXPECT_EQ(integer_share(llama(kGptq), DType::kFloat32, 0), 0);
}

TEST(IntegerShare, WeighsProductsByTheirSize) {
  const ModelConfig mixed = llama(packed_but("re:.*down_proj"));
  EXPECT_DOUBLE_EQ(integer_share(mixed, DType::kBFloat16, 0), 28672.0 / 36864);
  EXPECT_EQ(integer_share(mixed, DType::kBFloat16, 8), 1) << "the rest is rounded as it loads";
}

}  // namespace
}  // namespace quire
