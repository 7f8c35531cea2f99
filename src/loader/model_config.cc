#include "loader/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "loader/gguf_config.h"
#include "loader/json_fields.h"
#include "loader/model_limits.h"
#include "loader/quantization_reader.h"
#include "loader/rope_config.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

using loader_internal::JsonFields;
using loader_internal::kMaxHeadDim;
using loader_internal::kMaxHeads;
using loader_internal::kMaxHidden;
using loader_internal::kMaxIntermediate;
using loader_internal::kMaxLayers;
using loader_internal::kMaxPositions;
using loader_internal::kMaxVocab;
using loader_internal::shown;

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr int kMaxConfigDepth = 32;

// What transformers' configuration class of a family assumes where config.json says nothing. A
// family that isn't listed here has Llama's: as many KV heads as heads, head_dim from hidden_size,
// no window.
struct FamilyDefaults {
  std::string_view architecture;
  bool kv_heads_required = false;  // the class's default is the size of one model of the family
  int64_t head_dim = 0;            // 0: hidden_size / num_attention_heads
  bool use_sliding_window = true;  // whether sliding_window counts without use_sliding_window
  int64_t sliding_window = 0;      // 0: none
  bool has_sliding_window = true;  // whether transformers heeds sliding_window at all
  double rms_norm_eps = 1e-6;
};

constexpr FamilyDefaults kFamilyDefaults[] = {
    {"Qwen3ForCausalLM", true, 128, false, 0},
    {"Qwen2ForCausalLM", true, 0, false, 0},
    {"MistralForCausalLM", true, 0, true, 4096},
    {"LlamaForCausalLM", false, 0, true, 0, false},
    {.architecture = "Phi3ForCausalLM", .rms_norm_eps = 1e-5},
};

FamilyDefaults defaults_of(std::string_view architecture) {
  for (const FamilyDefaults& family : kFamilyDefaults) {
    if (family.architecture == architecture) return family;
  }
  return {.architecture = architecture};
}

std::string parse_architecture(const JsonFields& config) {
  const auto names = config.strings("architectures");
  if (!names || names->empty()) {
    config.fail("architectures",
                "is missing or empty; expected a list with the model's class, such as "
                "[\"Qwen3ForCausalLM\"]");
  }
  return names->front();
}

void refuse_unsupported(const JsonFields& config) {
  if (config.has("compression_config")) {
    config.fail("compression_config", "is present; expected quantization_config in its place");
  }
  if (config.boolean("is_encoder_decoder").value_or(false)) {
    config.fail_value("is_encoder_decoder", "false: only decoders are supported");
  }
}

DType parse_dtype(const JsonFields& config) {
  // transformers reads the older name only where the newer is missing.
  const char* field = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::optional<std::string> name = config.string(field);
  if (!name) return DType::kFloat32;
  const std::optional<DType> dtype = dtype_from_name(*name);
  const bool is_float =
      dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16;
  if (!is_float) config.fail_value(field, "float32, bfloat16 or float16");
  return *dtype;
}

void parse_sizes(const JsonFields& config, ModelConfig& result) {
  result.vocab_size = config.required_integer("vocab_size", 1, kMaxVocab);
  result.hidden_size = config.required_integer("hidden_size", 1, kMaxHidden);
  result.intermediate_size = config.required_integer("intermediate_size", 1, kMaxIntermediate);
  result.num_hidden_layers = config.required_integer("num_hidden_layers", 1, kMaxLayers);
  result.max_position_embeddings =
      config.required_integer("max_position_embeddings", 1, kMaxPositions);
}

void parse_heads(const JsonFields& config, const FamilyDefaults& family, ModelConfig& result) {
  const int64_t heads = config.required_integer("num_attention_heads", 1, kMaxHeads);
  result.num_attention_heads = heads;
  if (family.kv_heads_required && !config.mentions("num_key_value_heads")) {
    config.required_integer("num_key_value_heads", 1, heads);
  }
  result.num_key_value_heads = config.integer("num_key_value_heads", 1, heads).value_or(heads);
  if (heads % result.num_key_value_heads != 0) {
    config.fail_value("num_key_value_heads",
                      fmt::format("a divisor of num_attention_heads, {}", heads));
  }
  const std::optional<int64_t> head_dim = config.integer("head_dim", 2, kMaxHeadDim);
  if (head_dim) {
    result.head_dim = *head_dim;
    if (*head_dim % 2 != 0) config.fail_value("head_dim", "an even number");
  } else if (family.head_dim != 0 && !config.mentions("head_dim")) {
    result.head_dim = family.head_dim;
  } else {
    result.head_dim = result.hidden_size / heads;
    if (result.hidden_size % heads != 0 || result.head_dim % 2 != 0 ||
        result.head_dim > kMaxHeadDim) {
      config.fail("head_dim",
                  fmt::format("is missing, and hidden_size {} / num_attention_heads {} is no "
                              "even number from 2 to {}",
                              result.hidden_size, heads, kMaxHeadDim));
    }
  }
}

// The window that layers with one have; 0 for none.
int64_t parse_window(const JsonFields& config, const FamilyDefaults& family) {
  const std::optional<bool> used = config.boolean("use_sliding_window");
  const std::optional<int64_t> window = config.integer("sliding_window", 1, kMaxPositions);
  if (!used.value_or(family.use_sliding_window)) return 0;
  if (window && !family.has_sliding_window && !config.has("layer_types")) {
    config.fail_value("sliding_window",
                      fmt::format("null: {} has no sliding window", family.architecture));
  }
  if (window) return *window;
  if (used && !config.mentions("sliding_window")) {
    config.fail("sliding_window",
                "is missing though use_sliding_window is true; expected a number of "
                "tokens");
  }
  return config.mentions("sliding_window") ? 0 : family.sliding_window;
}

std::vector<int64_t> windows_from_layer_types(const JsonFields& config,
                                              const std::vector<std::string>& types,
                                              int64_t num_layers, int64_t window) {
  if (static_cast<int64_t>(types.size()) != num_layers) {
    config.fail("layer_types", fmt::format("has {} items; expected one for each of the {} layers",
                                           types.size(), num_layers));
  }
  std::vector<int64_t> windows;
  for (const std::string& type : types) {
    if (type == "full_attention") {
      windows.push_back(0);
    } else if (type != "sliding_attention") {
      config.fail("layer_types", fmt::format("holds {}; full_attention and sliding_attention are "
                                             "supported",
                                             shown(type)));
    } else if (window == 0) {
      config.fail(
          "layer_types",
          "holds sliding_attention, but sliding_window and use_sliding_window give no window");
    } else {
      windows.push_back(window);
    }
  }
  return windows;
}

std::vector<int64_t> parse_windows(const JsonFields& config, const FamilyDefaults& family,
                                   int64_t num_layers) {
  const int64_t window = parse_window(config, family);
  const std::optional<int64_t> first = config.integer("max_window_layers", 0, INT32_MAX);
  if (const auto types = config.strings("layer_types")) {
    return windows_from_layer_types(config, *types, num_layers, window);
  }
  if (window != 0 && !family.use_sliding_window && !first) {
    config.fail("max_window_layers",
                "is missing though use_sliding_window is true; expected the number "
                "of layers without a window");
  }
  // The first max_window_layers layers have no window (transformers' Qwen2Config).
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), window);
  std::fill_n(windows.begin(), std::min(first.value_or(0), num_layers), 0);
  return windows;
}

std::string config_path(const fs::path& folder, const char* file) {
  if (!fs::is_directory(folder)) {
    throw Error(fmt::format("{}: expected a model's folder, but there is {}.", folder.string(),
                            fs::exists(folder) ? "a file" : "nothing"));
  }
  return (folder / file).string();
}

nlohmann::ordered_json read_json(const std::string& path) {
  return parse_json_object(read_text_file(path, kMaxConfigBytes), path,
                           {.max_depth = kMaxConfigDepth});
}

std::vector<int32_t> parse_eos(const JsonFields& config) {
  std::vector<int32_t> result;
  for (const int64_t id :
       config.integers("eos_token_id", 0, INT32_MAX).value_or(std::vector<int64_t>{})) {
    result.push_back(static_cast<int32_t>(id));
  }
  return result;
}

std::optional<int32_t> parse_bos(const JsonFields& config) {
  const std::optional<int64_t> id = config.integer("bos_token_id", 0, INT32_MAX);
  return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
}

void parse_sampling(const JsonFields& config, GenerationConfig& result) {
  result.do_sample = config.boolean("do_sample");
  // The ranges are those of SamplingParams: what a request could not ask for is no default either.
  result.temperature = config.number("temperature", 0.0, 100.0);
  // 0 and -1 switch it off.
  if (const auto top_k = config.integer("top_k", -1, INT32_MAX)) {
    result.top_k = static_cast<int>(*top_k);
  }
  result.top_p = config.number("top_p", 0.0, 1.0);
  if (result.top_p == 0.0) config.fail_value("top_p", "a number above 0 and up to 1");
  result.min_p = config.number("min_p", 0.0, 1.0);
  result.repetition_penalty = config.number("repetition_penalty", 0.0, 10.0);
  if (result.repetition_penalty == 0.0) {
    config.fail_value("repetition_penalty", "a number above 0 and up to 10");
  }
  result.max_new_tokens = config.integer("max_new_tokens", 1, kMaxPositions);
}

}  // namespace

int64_t ModelConfig::max_model_len() const {
  auto length = static_cast<double>(max_position_embeddings);
  if (rope.type == RopeType::kYarn) {
    length = static_cast<double>(rope.original_max_position_embeddings) * rope.factor;
  } else if (rope.type == RopeType::kLinear) {
    length *= rope.factor;
  }
  return static_cast<int64_t>(std::min(length, static_cast<double>(kMaxPositions)));
}

ModelConfig parse_model_config(std::string_view text, const std::string& name) {
  const nlohmann::ordered_json json = parse_json_object(text, name, {.max_depth = kMaxConfigDepth});
  const JsonFields config(json, name);
  ModelConfig result;
  result.architecture = parse_architecture(config);
  result.model_type = config.string("model_type").value_or("");
  refuse_unsupported(config);
  const FamilyDefaults family = defaults_of(result.architecture);
  parse_sizes(config, result);
  parse_heads(config, family, result);
  result.rms_norm_eps = config.number("rms_norm_eps", 1e-12, 1.0).value_or(family.rms_norm_eps);
  result.hidden_act = config.string("hidden_act").value_or(result.hidden_act);
  result.tie_word_embeddings = config.boolean("tie_word_embeddings").value_or(false);
  result.attention_bias = config.boolean("attention_bias").value_or(false);
  result.mlp_bias = config.boolean("mlp_bias").value_or(false);
  result.layer_sliding_window = parse_windows(config, family, result.num_hidden_layers);
  result.dtype = parse_dtype(config);
  if (const auto quantization = config.object("quantization_config")) {
    result.quantization = loader_internal::parse_quantization_config(*quantization);
  }
  result.rope =
      loader_internal::parse_rope_config(config, result.head_dim, result.max_position_embeddings);
  return result;
}

ModelConfig load_model_config(const fs::path& model) {
  if (is_gguf_path(model)) return gguf_model_config(GgufModel::open(model));
  const std::string path = config_path(model, "config.json");
  return parse_model_config(read_text_file(path, kMaxConfigBytes), path);
}

GenerationConfig load_generation_config(const fs::path& model) {
  if (is_gguf_path(model)) return gguf_generation_config(GgufModel::open(model));
  const std::string config_file = config_path(model, "config.json");
  const nlohmann::ordered_json config_json = read_json(config_file);
  const JsonFields config(config_json, config_file);
  GenerationConfig result;
  result.eos_token_ids = parse_eos(config);
  result.bos_token_id = parse_bos(config);

  const fs::path path = model / "generation_config.json";
  if (!fs::exists(path)) return result;
  const nlohmann::ordered_json json = read_json(path.string());
  const JsonFields generation(json, path.string());
  if (generation.has("eos_token_id")) result.eos_token_ids = parse_eos(generation);
  if (generation.has("bos_token_id")) result.bos_token_id = parse_bos(generation);
  parse_sampling(generation, result);
  return result;
}

}  // namespace quire
