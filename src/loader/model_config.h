#pragma once
// A model's config.json and generation_config.json, checked and with every default filled in.
//
// Both spellings found on the hub are read: rope_theta + rope_scaling + torch_dtype, and
// rope_parameters + dtype. A value that is missing, of the wrong type or out of range is an Error
// naming the file, the field, the value and what is expected; so is a feature that quire does not
// have. models/families.h decides whether the architecture and the activation are known. Thread
// safety: a plain value.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "loader/quantization_config.h"

namespace quire {

enum class RopeType { kDefault, kLinear, kDynamicNtk, kYarn, kLlama3, kLongRope };

// Formulas: transformers' modeling_rope_utils.py (5.x), under the same names.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double factor = 1.0;
  double partial_rotary_factor = 1.0;
  int64_t original_max_position_embeddings = 0;  // as given, else max_position_embeddings
  // YaRN and LongRoPE
  std::optional<double> attention_factor;
  // YaRN
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;
  bool truncate = true;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // LongRoPE: what each frequency is divided by, rotary_dim / 2 of them.
  std::vector<double> short_factor;
  std::vector<double> long_factor;

  // How many leading elements of a head are rotated; rounded towards zero, as in transformers.
  int64_t rotary_dim(int64_t head_dim) const;
  // The fewest elements that this RoPE type can rotate.
  int64_t min_rotary_dim() const;
  // Whether rotary_dim is even and at least min_rotary_dim().
  bool can_rotate(int64_t head_dim) const;

  bool operator==(const RopeConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;  // architectures[0]: "Qwen3ForCausalLM"
  std::string model_type;    // "qwen3"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  std::string hidden_act = "silu";
  bool tie_word_embeddings = false;
  bool attention_bias = false;  // each family says what it means (models/families.cc)
  bool mlp_bias = false;
  // For each layer: tokens a query sees, 0 for all; from sliding_window, use_sliding_window,
  // max_window_layers, layer_types.
  std::vector<int64_t> layer_sliding_window;
  DType dtype = DType::kFloat32;  // of the checkpoint's dense weights, as the config says
  RopeConfig rope;
  std::optional<QuantizationConfig> quantization = std::nullopt;  // none: no layer is quantised

  // The longest context without further options, counted as in vLLM: max_position_embeddings, times
  // the factor of linear scaling; for YaRN the original length times its factor; for dynamic NTK
  // the original length, at which it changes nothing. A user may ask for more.
  int64_t max_model_len() const;
};

// The sampling defaults and the end-of-sequence tokens.
struct GenerationConfig {
  std::vector<int32_t> eos_token_ids;  // generation_config.json's, else config.json's
  std::optional<int32_t> bos_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature;
  std::optional<int> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// Of a model's folder, or of a GGUF file (loader/gguf_config.h).
ModelConfig load_model_config(const std::filesystem::path& model);
// generation_config.json may be missing.
GenerationConfig load_generation_config(const std::filesystem::path& model);

// From bytes, for tests and fuzzing; `name` stands for the file in messages.
ModelConfig parse_model_config(std::string_view json, const std::string& name);

}  // namespace quire
