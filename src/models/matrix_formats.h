#pragma once
// Which of a model's matrices its checkpoint has quantised, and what that is called in a plan.
//
// Thread safety: free functions without state.
#include <span>
#include <string>
#include <string_view>

#include "layers/linear.h"
#include "layers/parameters.h"
#include "loader/model_config.h"

namespace quire {

// The format of the linear layer that is made of these modules of the checkpoint ("q_proj", ...)
// under `prefix` ("model.layers.0.self_attn."). They are one matrix: where a GGUF file has some of
// them in blocks and some not, it is as dense. Throws Error where a quantization_config quantises
// some of them and some not.
MatrixFormat format_of(const ModelConfig& config, std::string_view prefix,
                       std::span<const std::string> modules);

// "bfloat16", "fp8 with scales", "bfloat16 from AWQ, 4 bits, groups of 128", "int4 in groups of 32,
// activations int8".
std::string describe(const MatrixProduct& product);

}  // namespace quire
