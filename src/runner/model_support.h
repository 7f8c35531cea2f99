#pragma once
// What can be said of a model from its config alone: is it supported, how large is it, what does it
// cost.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <optional>
#include <string>

#include "models/model.h"
#include "quire/benchmark.h"

namespace quire {

// The reason, as a sentence; nothing where the model is supported.
std::optional<std::string> why_unsupported(const ModelConfig& config);

// Numbers in all tensors that a checkpoint of this model must hold. Makes the model without
// touching its weights' memory, which has to fit.
int64_t count_parameters(const ModelOptions& options);

// See quire/benchmark.h. Counts what every supported family has: attention, gated MLP, output
// layer.
ModelCost cost_of(const ModelConfig& config, DType dtype);

}  // namespace quire
