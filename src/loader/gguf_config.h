#pragma once
// The model's config from a GGUF file's metadata: the values that otherwise come from config.json
// and generation_config.json.
//
// Architectures: qwen2, qwen3, llama (also Mistral's models) and phi3. Others, and features that
// quire does not compute from these files (experts, scaled logits, heads that differ from layer to
// layer), are an Error naming the key. Thread safety: free functions without state.
#include "loader/gguf_model.h"
#include "loader/model_config.h"

namespace quire {

ModelConfig gguf_model_config(const GgufModel& model);

// The end-of-sequence tokens are the file's eos, eot and eom, and the control tokens that end a
// turn in the chat formats of these models.
GenerationConfig gguf_generation_config(const GgufModel& model);

}  // namespace quire
