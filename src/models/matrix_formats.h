#pragma once
// Which of a model's matrices are quantised in its checkpoint, and their names in a plan.
//
// Thread safety: free functions without state.
#include <span>
#include <string>
#include <string_view>

#include "layers/linear.h"
#include "layers/parameters.h"
#include "loader/model_config.h"

namespace quire {

// The format of the linear layer that consists of these modules of the checkpoint ("q_proj", ...)
// under `prefix` ("model.layers.0.self_attn."). They form one matrix: if a GGUF file has only some
// of them in blocks, the matrix is dense. Throws Error where a quantization_config quantises only
// some of them.
MatrixFormat format_of(const ModelConfig& config, std::string_view prefix,
                       std::span<const std::string> modules);

// "bfloat16", "fp8 with scales", "bfloat16 from AWQ, 4 bits, groups of 128", "int4 in groups of 32,
// activations int8".
std::string describe(const MatrixProduct& product);

}  // namespace quire
