#pragma once
// RoPE's parameters from a GGUF file: the keys under "<architecture>.rope", and the tensors of
// factors that the file has in place of the parameters of Llama 3's and Phi-3's schemes.
//
// Thread safety: a free function without state.
#include <cstdint>

#include "loader/gguf_keys.h"
#include "loader/model_config.h"

namespace quire::loader_internal {

// Throws Error naming the key or tensor that is out of range or not supported.
RopeConfig gguf_rope_config(const GgufKeys& keys, int64_t head_dim, int64_t max_positions);

}  // namespace quire::loader_internal
