#pragma once
// The model families that quire knows, by the name in config.json's `architectures`.
//
// Errors: an architecture, activation or parallel size that isn't supported throws Error naming the
// field, its value and what is supported. Thread safety: free functions without state.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/decoder.h"
#include "models/model.h"

namespace quire {

// A family of the shared decoder, and what is particular to it.
struct ModelFamily {
  std::string_view architecture;  // "Qwen3ForCausalLM"
  DecoderOptions (*options)(const ModelConfig&);
};

std::span<const ModelFamily> model_families();

// Names of the linear layers that a checkpoint of this model has, without ".weight"; none where the
// family is not known.
std::vector<std::string> linear_layers(const ModelConfig& config);

// With zero weights.
std::unique_ptr<Model> create_model(const ModelOptions& options);

}  // namespace quire
