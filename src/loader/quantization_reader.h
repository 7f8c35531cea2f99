#pragma once
// The field quantization_config of a config.json: how a checkpoint's weights are stored.
//
// Read are GPTQ, AWQ, compressed-tensors' formats pack-quantized, int-quantized and
// float-quantized, and Hugging Face's fp8. If the config also quantises activations, quire leaves
// these as they are, which is more exact.
//
// Thread safety: free functions without state.
#include "loader/json_fields.h"
#include "loader/quantization_config.h"

namespace quire::loader_internal {

// Throws Error naming the field where the object asks for something that quire does not read.
QuantizationConfig parse_quantization_config(const JsonFields& quantization);

}  // namespace quire::loader_internal
