#pragma once
// A small float8 checkpoint with random numbers, and the same one dequantised to bfloat16. Scales
// are powers of two, so bfloat16 holds each weight exactly. The sizes let every matrix stay float8
// on one to four GPUs. And what an engine makes of prompts for it.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "base/temporary_folder_test_util.h"
#include "core/dtype.h"
#include "loader/safetensors_test_util.h"
#include "quire/chat_input.h"
#include "quire/llm.h"

namespace quire::engine_test {

// What a scale is for.
enum class Float8Scales { kTensor, kOutput, kBlock };

// Which scales of a float8 KV cache the checkpoint has, one for each head.
enum class KvCacheScales {
  kNone,
  kHeads,    // powers of two
  kLarge,    // keys and values are 512 times as large, and so are the scales
  kLeftOut,  // keys and values are, and there are no scales
  kZero,     // as kLarge, but the first scale of keys is zero
};

class Float8Model {
 public:
  explicit Float8Model(Float8Scales scales, KvCacheScales kv_scales = KvCacheScales::kNone)
      : scales_(scales), kv_scales_(kv_scales) {
    std::filesystem::create_directories(quantised());
    std::filesystem::create_directories(dequantised());
    add_dense("model.embed_tokens.weight", {kVocab, kHidden}, 0.5f);
    add_dense("lm_head.weight", {kVocab, kHidden}, 0.5f);
    add_ones("model.norm.weight");
    for (int layer = 0; layer < kLayers; ++layer) add_layer(layer);
    write(quantised(), config(/*quantised=*/true), quantised_);
    write(dequantised(), config(/*quantised=*/false), dequantised_);
  }

  std::filesystem::path quantised() const { return temporary_.path() / "quantised"; }
  std::filesystem::path dequantised() const { return temporary_.path() / "dequantised"; }

  static constexpr int64_t kVocab = 96;

 private:
  static constexpr int64_t kHidden = 256;
  static constexpr int64_t kInner = 512;
  static constexpr int64_t kHeads = 8;
  static constexpr int64_t kKvHeads = 4;
  static constexpr int64_t kHeadDim = 128;
  static constexpr int kLayers = 2;
  static constexpr int64_t kBlock = 128;
  static constexpr int kLarger = 9;

  void add_layer(int layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    add_ones(name + "input_layernorm.weight");
    add_ones(name + "post_attention_layernorm.weight");
    const bool is_large = kv_scales_ != KvCacheScales::kNone && kv_scales_ != KvCacheScales::kHeads;
    const int larger = is_large ? kLarger : 0;
    add_matrix(name + "self_attn.q_proj", kHeads * kHeadDim, kHidden, -larger);
    add_matrix(name + "self_attn.k_proj", kKvHeads * kHeadDim, kHidden, larger);
    add_matrix(name + "self_attn.v_proj", kKvHeads * kHeadDim, kHidden, larger);
    add_matrix(name + "self_attn.o_proj", kHidden, kHeads * kHeadDim, -larger);
    if (kv_scales_ != KvCacheScales::kNone && kv_scales_ != KvCacheScales::kLeftOut) {
      const bool has_zero = kv_scales_ == KvCacheScales::kZero;
      add_kv_scales(name + "self_attn.k_scale", {has_zero ? 0.0f : 8, 16, 8, 32}, larger);
      add_kv_scales(name + "self_attn.v_scale", {16, 8, 32, 8}, larger);
    }
    add_matrix(name + "mlp.gate_proj", kInner, kHidden);
    add_matrix(name + "mlp.up_proj", kInner, kHidden);
    add_matrix(name + "mlp.down_proj", kHidden, kInner);
  }

  // Of keys and values that are larger by 2^larger; the numbers are for those by 2^kLarger.
  void add_kv_scales(const std::string& name, std::vector<float> scales, int larger) {
    for (float& scale : scales) scale = std::ldexp(scale, larger - kLarger);
    add_both({name, "F32", {kKvHeads}, bytes_of(scales)});
  }

  void add_both(const FileTensor& tensor) {
    quantised_.push_back(tensor);
    dequantised_.push_back(tensor);
  }

  void add_ones(const std::string& name) {
    add_both({name, "F32", {kHidden}, bytes_of(std::vector<float>(kHidden, 1.0f))});
  }

  void add_dense(const std::string& name, const std::vector<int64_t>& shape, float size) {
    std::vector<BFloat16> values;
    for (int64_t i = 0; i < shape[0] * shape[1]; ++i) values.emplace_back(size * uniform());
    add_both({name, "BF16", shape, bytes_of(values)});
  }

  // 2^exponent times as large as others.
  void add_matrix(const std::string& module, int64_t n, int64_t k, int exponent = 0) {
    std::vector<float> scales(static_cast<size_t>(scale_rows(n) * scale_columns(k)));
    for (float& scale : scales) {
      scale = std::ldexp(1.0f, exponent - 13 + static_cast<int>(random_() % 3));
    }
    std::vector<Float8E4M3> numbers;
    std::vector<BFloat16> values;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) {
        numbers.emplace_back(448 * uniform());
        const float scale =
            scales[static_cast<size_t>(scale_row(i) * scale_columns(k) + j * scale_columns(k) / k)];
        values.emplace_back(static_cast<float>(numbers.back()) * scale);
      }
    }
    quantised_.push_back({module + ".weight", "F8_E4M3", {n, k}, bytes_of(numbers)});
    quantised_.push_back({module + scale_leaf(), "F32", scale_shape(n, k), bytes_of(scales)});
    dequantised_.push_back({module + ".weight", "BF16", {n, k}, bytes_of(values)});
  }

  float uniform() { return static_cast<float>(random_() % 2048) / 1024.0f - 1.0f; }

  int64_t scale_row(int64_t i) const {
    if (scales_ == Float8Scales::kTensor) return 0;
    return scales_ == Float8Scales::kOutput ? i : i / kBlock;
  }
  int64_t scale_rows(int64_t n) const { return scale_row(n - 1) + 1; }
  int64_t scale_columns(int64_t k) const {
    return scales_ == Float8Scales::kBlock ? k / kBlock : 1;
  }
  std::vector<int64_t> scale_shape(int64_t n, int64_t k) const {
    if (scales_ == Float8Scales::kTensor) return {};
    return {scale_rows(n), scale_columns(k)};
  }
  std::string scale_leaf() const {
    return scales_ == Float8Scales::kBlock ? ".weight_scale_inv" : ".weight_scale";
  }

  nlohmann::json quantization() const {
    if (scales_ == Float8Scales::kTensor) {
      return {{"quant_method", "fp8"}, {"activation_scheme", "static"}};
    }
    if (scales_ == Float8Scales::kBlock) {
      return {{"quant_method", "fp8"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {kBlock, kBlock}}};
    }
    const nlohmann::json weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "float-quantized"},
            {"ignore", {"lm_head"}},
            {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
  }

  nlohmann::json config(bool is_quantised) const {
    nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                             {"model_type", "llama"},
                             {"dtype", "bfloat16"},
                             {"vocab_size", kVocab},
                             {"hidden_size", kHidden},
                             {"intermediate_size", kInner},
                             {"num_hidden_layers", kLayers},
                             {"num_attention_heads", kHeads},
                             {"num_key_value_heads", kKvHeads},
                             {"head_dim", kHeadDim},
                             {"hidden_act", "silu"},
                             {"max_position_embeddings", 256},
                             {"rms_norm_eps", 1e-6},
                             {"rope_theta", 10000.0},
                             {"tie_word_embeddings", false}};
    if (is_quantised) config["quantization_config"] = quantization();
    return config;
  }

  static void write(const std::filesystem::path& folder, const nlohmann::json& config,
                    const std::vector<FileTensor>& tensors) {
    std::ofstream(folder / "config.json") << config.dump();
    std::ofstream(folder / "model.safetensors", std::ios::binary) << to_safetensors(tensors);
  }

  const Float8Scales scales_;
  const KvCacheScales kv_scales_;
  const TemporaryFolder temporary_;
  std::mt19937 random_{7};
  std::vector<FileTensor> quantised_;
  std::vector<FileTensor> dequantised_;
};

// Prompts of several lengths, greedily continued.
struct Continued {
  std::vector<std::vector<int32_t>> ids;
  std::vector<float> logprobs;  // of the prompts' tokens

  explicit Continued(const EngineConfig& config) {
    LLM llm(config);
    std::vector<Prompt> prompts;
    for (int i = 0; i < 3; ++i) {
      std::vector<int32_t> prompt;
      for (int t = 0; t < 5 + 9 * i; ++t) prompt.push_back((t * t * 29 + i) % 90);
      prompts.emplace_back(prompt);
    }
    SamplingParams params{.temperature = 0, .max_tokens = 6, .ignore_eos = true};
    params.prompt_logprobs = 0;
    for (const RequestOutput& output : llm.generate(prompts, params)) {
      ids.push_back(output.outputs[0].token_ids);
      for (const auto& position : output.prompt_logprobs) {
        if (!position.empty()) logprobs.push_back(position.front().logprob);
      }
    }
  }
};

}  // namespace quire::engine_test
