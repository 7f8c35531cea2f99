#pragma once
// The field quantization_config of a config.json: how a checkpoint's weights are stored.
//
// What is read: compressed-tensors' format float-quantized (llm-compressor's FP8), one group of all
// linear layers with symmetric float8 e4m3 weights and a scale for each output feature, but for the
// layers in `ignore`. Activations may be said to be quantised as a step runs, a token at a time;
// quire leaves them as they are, which is more exact.
//
// Thread safety: a free function without state.
#include "loader/json_fields.h"
#include "loader/quantization_config.h"

namespace quire::loader_internal {

// Throws Error naming the field where the object is of another method, format, strategy or scheme.
QuantizationConfig parse_quantization_config(const JsonFields& quantization);

}  // namespace quire::loader_internal
