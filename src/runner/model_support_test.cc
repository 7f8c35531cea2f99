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

ModelOptions options(const ModelConfig& config, DType dtype, WeightRounding rounding) {
  ModelOptions options;
  options.config = config;
  options.dtype = dtype;
  options.rounding = rounding;
  return options;
}

TEST(IntegerShare, IsAllOrNothingWhereTheLayersAreAlike) {
  EXPECT_EQ(integer_share(options(llama(""), DType::kBFloat16, WeightRounding::kNone)), 0);
  EXPECT_EQ(integer_share(options(llama(""), DType::kBFloat16, WeightRounding::kInt8)), 1);
  EXPECT_EQ(integer_share(options(llama(kGptq), DType::kBFloat16, WeightRounding::kNone)), 1);
}

TEST(IntegerShare, IsNothingWhereActivationsStayFloat32) {
  EXPECT_EQ(integer_share(options(llama(""), DType::kFloat32, WeightRounding::kInt4)), 0);
  EXPECT_EQ(integer_share(options(llama(kGptq), DType::kFloat32, WeightRounding::kNone)), 0);
}

TEST(IntegerShare, WeighsProductsByTheirSize) {
  const ModelConfig mixed = llama(packed_but("re:.*down_proj"));
  EXPECT_DOUBLE_EQ(integer_share(options(mixed, DType::kBFloat16, WeightRounding::kNone)),
                   28672.0 / 36864);
  EXPECT_EQ(integer_share(options(mixed, DType::kBFloat16, WeightRounding::kInt8)), 1)
      << "the rest is rounded as it loads";
}

TEST(DescribeActivations, SaysWhereTheyAreRounded) {
  EXPECT_EQ(describe_activations(llama("")), "");
  EXPECT_EQ(describe_activations(llama(packed_but("model.embed_tokens"))),
            "int8 on the CPU in 8 of 9 matrices, not rounded on a GPU; with --dtype float32 never "
            "rounded");
  EXPECT_EQ(describe_activations(llama(packed_but("re:.*down_proj"))),
            "int8 on the CPU in 6 of 9 matrices, not rounded on a GPU; with --dtype float32 never "
            "rounded");
}

// Matrices of 128 inputs and more are multiplied in float8 on a GPU; the others are dense there.
TEST(DescribeActivations, OfFloat8AreRoundedOnAGpu) {
  const std::string text = describe_activations(
      llama(R"(, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"})"));
  EXPECT_EQ(text,
            "not rounded on the CPU, float8 on a GPU in 2 of 9 matrices; with --dtype float32 "
            "never rounded");
}

}  // namespace
}  // namespace quire
