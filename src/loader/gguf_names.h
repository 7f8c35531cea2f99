#pragma once
// Translates the names of GGUF's tensors to those of Hugging Face's checkpoints, which the models
// use.
//
// Thread safety: free functions without state.
#include <string>
#include <string_view>

namespace quire {

// "blk.3.attn_q.weight" of a llama becomes "model.layers.3.self_attn.q_proj.weight". An unknown
// name is returned unchanged.
std::string hugging_face_name(std::string_view architecture, std::string_view name);

// The other way round.
std::string gguf_name(std::string_view architecture, std::string_view name);

// Whether the tensor is a part of the config rather than a weight: the factors of RoPE.
bool is_config_tensor(std::string_view name);

}  // namespace quire
