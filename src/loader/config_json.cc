#include "loader/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/check.h"
#include "quire/error.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void set_if(Json& json, const char* field, const std::optional<T>& value) {
  if (value) json[field] = *value;
}

void set_tokens(Json& json, const GenerationConfig& generation) {
  set_if(json, "bos_token_id", generation.bos_token_id);
  if (!generation.eos_token_ids.empty()) json["eos_token_id"] = generation.eos_token_ids;
}

const char* rope_type_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kDynamicNtk:
      return "dynamic";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kLongRope:
      return "longrope";
  }
  return "";
}

Json rope_scaling(const RopeConfig& rope) {
  Json json = {{"rope_type", rope_type_name(rope.type)}, {"factor", rope.factor}};
  if (rope.type == RopeType::kLinear || rope.type == RopeType::kDynamicNtk) return json;
  json["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  if (rope.type == RopeType::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    return json;
  }
  set_if(json, "attention_factor", rope.attention_factor);
  if (rope.type == RopeType::kLongRope) {
    json["short_factor"] = rope.short_factor;
    json["long_factor"] = rope.long_factor;
    return json;
  }
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  set_if(json, "mscale", rope.mscale);
  set_if(json, "mscale_all_dim", rope.mscale_all_dim);
  if (!rope.truncate) json["truncate"] = false;
  return json;
}

// All layers have the same window: a GGUF file has one number.
void set_window(const ModelConfig& config, Json& json) {
  const int64_t window =
      config.layer_sliding_window.empty() ? 0 : config.layer_sliding_window.front();
  check(std::ranges::all_of(config.layer_sliding_window,
                            [window](int64_t each) { return each == window; }),
        "all layers have one window");
  if (window == 0) return;
  json["sliding_window"] = window;
  if (config.architecture == "LlamaForCausalLM") {
    if (config.attention_bias || config.mlp_bias) {
      throw Error(
          "The model's layers have a sliding window and biases; transformers' class of llama has "
          "no "
          "window, and that of mistral no biases.");
    }
    json["architectures"] = Json::array({"MistralForCausalLM"});
    json["model_type"] = "mistral";
  } else if (config.architecture.starts_with("Qwen")) {
    json["use_sliding_window"] = true;
    json["max_window_layers"] = 0;
  }
}

}  // namespace

Json config_json(const ModelConfig& config, const GenerationConfig& generation) {
  Json json = {{"architectures", Json::array({config.architecture})},
               {"model_type", config.model_type},
               {"vocab_size", config.vocab_size},
               {"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_hidden_layers},
               {"num_attention_heads", config.num_attention_heads},
               {"num_key_value_heads", config.num_key_value_heads},
               {"head_dim", config.head_dim},
               {"max_position_embeddings", config.max_position_embeddings},
               {"rms_norm_eps", config.rms_norm_eps},
               {"hidden_act", config.hidden_act},
               {"tie_word_embeddings", config.tie_word_embeddings},
               {"attention_bias", config.attention_bias},
               {"mlp_bias", config.mlp_bias},
               {"torch_dtype", std::string(name_of(config.dtype))},
               {"rope_theta", config.rope.theta}};
  if (config.rope.partial_rotary_factor != 1.0) {
    json["partial_rotary_factor"] = config.rope.partial_rotary_factor;
  }
  if (config.rope.type != RopeType::kDefault) json["rope_scaling"] = rope_scaling(config.rope);
  set_window(config, json);
  set_tokens(json, generation);
  return json;
}

Json generation_config_json(const GenerationConfig& generation) {
  Json json = Json::object();
  set_tokens(json, generation);
  set_if(json, "do_sample", generation.do_sample);
  set_if(json, "temperature", generation.temperature);
  set_if(json, "top_k", generation.top_k);
  set_if(json, "top_p", generation.top_p);
  set_if(json, "min_p", generation.min_p);
  set_if(json, "repetition_penalty", generation.repetition_penalty);
  set_if(json, "max_new_tokens", generation.max_new_tokens);
  return json;
}

}  // namespace quire
