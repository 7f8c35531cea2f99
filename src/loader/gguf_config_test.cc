#include "loader/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/temporary_folder_test_util.h"
#include "loader/gguf_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr uint32_t kF32Type = 0;
constexpr uint32_t kF16Type = 1;

std::string zeros(size_t count) {
  return std::string(count * sizeof(float), '\0');
}

// The keys and the embedding of a small model: hidden size 16, 4 heads of 4, 2 layers.
GgufWriter small_model(const std::string& architecture) {
  GgufWriter writer;
  const auto key = [&](const char* name) { return architecture + "." + name; };
  writer.text("general.architecture", architecture)
      .integer(key("block_count"), 2)
      .integer(key("context_length"), 64)
      .integer(key("embedding_length"), 16)
      .integer(key("feed_forward_length"), 32)
      .integer(key("attention.head_count"), 4)
      .integer(key("attention.head_count_kv"), 2)
      .number(key("attention.layer_norm_rms_epsilon"), 1e-5f)
      .number(key("rope.freq_base"), 5000.0f);
  return writer.tensor("token_embd.weight", kF32Type, {8, 16}, zeros(8 * 16));
}

class GgufConfigTest : public testing::Test {
 protected:
  GgufModel open(const GgufWriter& writer) const {
    const auto path = temporary_.path() / "m.gguf";
    std::ofstream(path, std::ios::binary) << writer.str();
    return GgufModel::open(path);
  }
  ModelConfig config(const GgufWriter& writer) const { return gguf_model_config(open(writer)); }
  std::string error_of(const GgufWriter& writer) const {
    try {
      config(writer);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
};

TEST_F(GgufConfigTest, ReadsWhatConfigJsonSays) {
  const ModelConfig model = config(small_model("qwen3").integer("qwen3.attention.key_length", 8));
  EXPECT_EQ(model.architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(model.model_type, "qwen3");
  EXPECT_EQ(model.vocab_size, 8);
  EXPECT_EQ(model.hidden_size, 16);
  EXPECT_EQ(model.intermediate_size, 32);
  EXPECT_EQ(model.num_hidden_layers, 2);
  EXPECT_EQ(model.num_attention_heads, 4);
  EXPECT_EQ(model.num_key_value_heads, 2);
  EXPECT_EQ(model.head_dim, 8);
  EXPECT_EQ(model.max_position_embeddings, 64);
  EXPECT_FLOAT_EQ(static_cast<float>(model.rms_norm_eps), 1e-5f);
  EXPECT_EQ(model.hidden_act, "silu");
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_FALSE(model.attention_bias);
  EXPECT_THAT(model.layer_sliding_window, ElementsAre(0, 0));
  EXPECT_EQ(model.dtype, DType::kFloat32);
  EXPECT_EQ(model.rope.type, RopeType::kDefault);
  EXPECT_EQ(model.rope.theta, 5000.0);
  EXPECT_EQ(model.rope.rotary_dim(8), 8);
  EXPECT_EQ(model.max_model_len(), 64);
}

TEST_F(GgufConfigTest, KnowsItsArchitectures) {
  EXPECT_EQ(config(small_model("llama")).architecture, "LlamaForCausalLM");
  EXPECT_EQ(config(small_model("qwen2")).architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(config(small_model("phi3")).architecture, "Phi3ForCausalLM");
  EXPECT_THAT(
      error_of(small_model("mamba")),
      HasSubstr("general.architecture is \"mamba\"; supported are llama, phi3, qwen2, qwen3"));
  EXPECT_THAT(error_of(GgufWriter()), HasSubstr("general.architecture is missing"));
}

TEST_F(GgufConfigTest, TensorsSayBiasesTiesAndTheDType) {
  GgufWriter writer = small_model("llama");
  writer.tensor("output.weight", kF16Type, {8, 16}, std::string(256, '\0'))
      .tensor("blk.0.attn_q.bias", kF32Type, {16}, zeros(16))
      .tensor("blk.0.ffn_gate.bias", kF32Type, {32}, zeros(32))
      .tensor("blk.0.ffn_gate.weight", kF16Type, {32, 16}, std::string(1024, '\0'));
  const ModelConfig model = config(writer);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_TRUE(model.attention_bias);
  EXPECT_TRUE(model.mlp_bias);
  EXPECT_EQ(model.dtype, DType::kFloat16);
  writer.tensor("blk.0.ffn_up.weight", 2, {64, 32}, std::string(64 * 18, '\0'));
  EXPECT_EQ(config(writer).dtype, DType::kBFloat16);
}

TEST_F(GgufConfigTest, ReadsScalingOfRope) {
  const RopeConfig linear = config(small_model("llama")
                                       .text("llama.rope.scaling.type", "linear")
                                       .number("llama.rope.scaling.factor", 4))
                                .rope;
  EXPECT_EQ(linear.type, RopeType::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  EXPECT_EQ(config(small_model("llama").number("llama.rope.scale_linear", 2)).rope.factor, 2.0);
  const RopeConfig untyped = config(small_model("llama")
                                        .number("llama.rope.scale_linear", 2)
                                        .number("llama.rope.scaling.factor", 4))
                                 .rope;
  EXPECT_EQ(untyped.type, RopeType::kLinear) << "as llama.cpp takes a factor without a type";
  EXPECT_EQ(untyped.factor, 4.0);

  const ModelConfig yarn = config(small_model("qwen2")
                                      .text("qwen2.rope.scaling.type", "yarn")
                                      .number("qwen2.rope.scaling.factor", 4)
                                      .integer("qwen2.rope.scaling.original_context_length", 32));
  EXPECT_EQ(yarn.rope.type, RopeType::kYarn);
  EXPECT_EQ(yarn.rope.original_max_position_embeddings, 32);
  EXPECT_EQ(yarn.rope.attention_factor, std::nullopt);
  EXPECT_EQ(yarn.max_model_len(), 128);

  const char* key = "llama.rope.scaling.yarn_attn_factor";
  EXPECT_EQ(config(small_model("llama").number(key, 1)).rope.type, RopeType::kDefault);
  EXPECT_THAT(error_of(small_model("llama").number(key, 3)),
              HasSubstr("llama.rope.scaling.yarn_attn_factor is 3; expected 1"));
  EXPECT_THAT(error_of(small_model("llama").text("llama.rope.scaling.type", "dynamic")),
              HasSubstr("llama.rope.scaling.type is \"dynamic\"; expected none, linear"));
  EXPECT_THAT(error_of(small_model("llama").text("llama.rope.scaling.type", "yarn")),
              HasSubstr("llama.rope.scaling.factor is missing"));
}

TEST_F(GgufConfigTest, ReadsFactorsOfRope) {
  const std::string factors = number_bytes(1.0f) + number_bytes(8.0f);
  const RopeConfig llama3 =
      config(small_model("llama").tensor("rope_freqs.weight", kF32Type, {2}, factors)).rope;
  EXPECT_EQ(llama3.type, RopeType::kLongRope);
  EXPECT_EQ(llama3.attention_factor, 1.0);
  EXPECT_THAT(llama3.short_factor, ElementsAre(1.0, 8.0));
  EXPECT_EQ(llama3.long_factor, llama3.short_factor);

  GgufWriter phi = small_model("phi3");
  phi.integer("phi3.rope.scaling.original_context_length", 16)
      .tensor("rope_factors_long.weight", kF32Type, {2}, factors)
      .tensor("rope_factors_short.weight", kF32Type, {2}, number_bytes(1.0f) + number_bytes(2.0f));
  const RopeConfig longrope = config(phi).rope;
  EXPECT_THAT(longrope.short_factor, ElementsAre(1.0, 2.0));
  EXPECT_THAT(longrope.long_factor, ElementsAre(1.0, 8.0));
  EXPECT_EQ(longrope.factor, 4.0);
  EXPECT_EQ(longrope.original_max_position_embeddings, 16);

  const auto with_freqs = [&](uint32_t type, uint64_t count, const std::string& bytes) {
    return small_model("llama").tensor("rope_freqs.weight", type, {count}, bytes);
  };
  EXPECT_THAT(error_of(with_freqs(kF32Type, 1, factors)), HasSubstr("is no list of 2 F32 numbers"));
  EXPECT_THAT(error_of(with_freqs(kF16Type, 2, factors)), HasSubstr("is no list of 2 F32 numbers"));
  EXPECT_THAT(error_of(with_freqs(kF32Type, 2, zeros(2))),
              HasSubstr("rope_freqs.weight holds 0 at index 0"));
  EXPECT_THAT(
      error_of(small_model("phi3").tensor("rope_factors_long.weight", kF32Type, {2}, factors)),
      HasSubstr("both of rope_factors_short.weight and rope_factors_long.weight"));
  EXPECT_THAT(error_of(small_model("phi3").text("phi3.rope.scaling.type", "longrope")),
              HasSubstr("there is no tensor rope_factors_long.weight"));
}

TEST_F(GgufConfigTest, RotatesAPartOfAHead) {
  GgufWriter writer = small_model("phi3");
  writer.integer("phi3.attention.key_length", 96).integer("phi3.rope.dimension_count", 62);
  EXPECT_EQ(config(writer).rope.rotary_dim(96), 62);
  for (uint32_t dim = 2; dim <= 96; dim += 2) {
    const ModelConfig model = config(small_model("phi3")
                                         .integer("phi3.attention.key_length", 96)
                                         .integer("phi3.rope.dimension_count", dim));
    EXPECT_EQ(model.rope.rotary_dim(96), dim);
  }
  EXPECT_THAT(error_of(small_model("llama").integer("llama.rope.dimension_count", 2)),
              HasSubstr("llama.rope.dimension_count is 2; expected 4, a whole head"));
  EXPECT_THAT(error_of(small_model("phi3").integer("phi3.rope.dimension_count", 3)),
              HasSubstr("is 3; expected an even number"));
}

TEST_F(GgufConfigTest, ValuesOfLayersMustAgree) {
  GgufWriter writer;
  writer.text("general.architecture", "llama")
      .integer("llama.block_count", 2)
      .integer("llama.context_length", 64)
      .integer("llama.embedding_length", 16)
      .integers("llama.feed_forward_length", {32, 32})
      .integers("llama.attention.head_count", {4, 4})
      .number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .tensor("token_embd.weight", kF32Type, {8, 16}, zeros(8 * 16));
  EXPECT_EQ(config(writer).intermediate_size, 32);
  EXPECT_EQ(config(writer).num_key_value_heads, 4);
  EXPECT_THAT(error_of(writer.integers("llama.attention.head_count_kv", {4, 2})),
              HasSubstr("llama.attention.head_count_kv differs from layer to layer"));
}

TEST_F(GgufConfigTest, RefusesWhatTheModelsDoNotCompute) {
  EXPECT_THAT(error_of(small_model("llama").integer("llama.expert_count", 8)),
              HasSubstr("llama.expert_count is 8; models of experts are not supported"));
  EXPECT_THAT(error_of(small_model("llama").number("llama.logit_scale", 8)),
              HasSubstr("llama.logit_scale is present, which is not supported"));
  EXPECT_THAT(error_of(small_model("qwen2").boolean("qwen2.attention.causal", false)),
              HasSubstr("only decoders"));
  EXPECT_THAT(error_of(small_model("llama").integer("llama.attention.value_length", 2)),
              HasSubstr("value_length is 2; expected 4"));
  EXPECT_THAT(error_of(small_model("llama").integer("llama.attention.key_length", 3)),
              HasSubstr("expected an even number from 2"));
  GgufWriter no_embedding;
  EXPECT_THAT(error_of(no_embedding.text("general.architecture", "llama")),
              HasSubstr("expected a matrix token_embd.weight"));
}

TEST_F(GgufConfigTest, FindsTheTokensThatEndAnAnswer) {
  const GgufModel model =
      open(small_model("llama")
               .integer("tokenizer.ggml.eos_token_id", 3)
               .integer("tokenizer.ggml.bos_token_id", 0)
               .integer("tokenizer.ggml.eot_token_id", 2)
               .number("general.sampling.temp", 0.5f)
               .integer("general.sampling.top_k", 20)
               .texts("tokenizer.ggml.tokens", {"<s>", "<|im_end|>", "<|eot_id|>", "x", "<|end|>"})
               .integers("tokenizer.ggml.token_type", {3, 3, 3, 1, 1}));
  const GenerationConfig generation = gguf_generation_config(model);
  EXPECT_THAT(generation.eos_token_ids, ElementsAre(3, 2, 1));
  EXPECT_EQ(generation.bos_token_id, 0);
  EXPECT_EQ(generation.temperature, 0.5);
  EXPECT_EQ(generation.top_k, 20);
  EXPECT_EQ(generation.top_p, std::nullopt);
}

TEST_F(GgufConfigTest, AWindowIsOfAllLayers) {
  const ModelConfig model = config(small_model("phi3").integer("phi3.attention.sliding_window", 7));
  EXPECT_THAT(model.layer_sliding_window, testing::AllOf(SizeIs(2), Each(7)));
}

TEST_F(GgufConfigTest, NeedsTheEpsilonOfNorms) {
  GgufWriter writer;
  writer.text("general.architecture", "qwen2")
      .integer("qwen2.block_count", 2)
      .integer("qwen2.context_length", 64)
      .integer("qwen2.embedding_length", 16)
      .integer("qwen2.feed_forward_length", 32)
      .integer("qwen2.attention.head_count", 4);
  EXPECT_THAT(error_of(writer.tensor("token_embd.weight", kF32Type, {8, 16}, zeros(8 * 16))),
              HasSubstr("qwen2.attention.layer_norm_rms_epsilon is missing"));
}

TEST_F(GgufConfigTest, SaysWhichLayersAreInBlocks) {
  EXPECT_EQ(config(small_model("qwen3")).quantization, std::nullopt);
  constexpr uint32_t kQ8Type = 8;
  const ModelConfig model = config(small_model("llama").tensor(
      "blk.1.ffn_down.weight", kQ8Type, {16, 32}, std::string(16 * 34, '\0')));
  ASSERT_TRUE(model.quantization.has_value());
  EXPECT_TRUE(model.quantization->is_gguf());
  EXPECT_TRUE(model.quantization->has_integers());
  const auto scheme = model.quantization->scheme_of("model.layers.1.mlp.down_proj");
  ASSERT_TRUE(scheme.has_value());
  EXPECT_EQ(scheme->describe(), "GGUF Q8_0");
  EXPECT_EQ(scheme->group_inputs, 32);
  EXPECT_EQ(model.quantization->scheme_of("model.layers.0.mlp.down_proj"), std::nullopt);
  EXPECT_EQ(model.quantization->scheme_of("model.embed_tokens"), std::nullopt);
}

}  // namespace
}  // namespace quire
