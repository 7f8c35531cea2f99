#pragma once
// A model's configuration as Hugging Face's config.json and generation_config.json: what a folder
// needs that is made from a GGUF file.
//
// Thread safety: free functions without state.
#include <nlohmann/json_fwd.hpp>

#include "loader/model_config.h"

namespace quire {

// What parse_model_config() reads as the same configuration but for its quantisation, which is left
// out, and for llama's class: where its layers have a sliding window it becomes Mistral's, whose
// class has one. Throws Error where no class of transformers has the layers of such a model.
nlohmann::ordered_json config_json(const ModelConfig& config, const GenerationConfig& generation);

// The end-of-sequence tokens and the sampling defaults.
nlohmann::ordered_json generation_config_json(const GenerationConfig& generation);

}  // namespace quire
