#pragma once
// The RoPE fields of a config.json, in either spelling. Thread safety: a free function without
// state.
#include <cstdint>

#include "loader/json_fields.h"
#include "loader/model_config.h"

namespace quire::loader_internal {

// `config` is the whole config.json. Semantics are those of transformers 5's
// RotaryEmbeddingConfigMixin; where transformers warns and goes on, or would silently prefer one
// field over another that disagrees, this throws Error.
RopeConfig parse_rope_config(const JsonFields& config, int64_t head_dim,
                             int64_t max_position_embeddings);

}  // namespace quire::loader_internal
