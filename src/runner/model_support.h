#pragma once
// What a model's config tells without its weights: whether the model is supported, how large it is,
// what it costs.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "models/model.h"
#include "quire/benchmark.h"

namespace quire {

// A sentence; nothing where the model is supported.
std::optional<std::string> why_unsupported(const ModelConfig& config);

// Throws Error where the model is not supported, or its layers cannot be split over options.size
// ranks.
void check_model(const ModelOptions& options);

// Which of the model's linear layers are quantised, and how; empty where the checkpoint names none.
std::string describe_quantization(const ModelConfig& config);

// How the products with these layers take their activations, on each kind of device: "int8 on the
// CPU, not rounded on a GPU; ..."; empty where no layer is quantised. Throws Error where the model
// is not supported.
std::string describe_activations(const ModelConfig& config);

// The number of parameters in a checkpoint of this model; scales of quantised tensors are not
// counted. Throws Error where the model is not supported.
int64_t count_parameters(const ModelOptions& options);
int64_t count_parameters(const ModelConfig& config);

// Names and shapes of the tensors of a checkpoint of this model where nothing is quantised, without
// data. Throws Error where the model is not supported.
std::vector<CheckpointTensor> dense_tensors(const ModelConfig& config);

// Throws Error where the checkpoint's weights are not those of the model, as loading them does.
void check_weights_of(const ModelOptions& options, const Checkpoint& checkpoint);

// See quire/benchmark.h. In floating point, so that a config of absurd sizes does not overflow.
// Throws Error where the model is not supported.
ModelCost cost_of(const ModelOptions& options, DType kv_cache_dtype);

// Bytes of the matrices that a step reads. Throws Error where the model is not supported.
struct WeightBytes {
  double layers = 0;
  double output_layer = 0;
};
WeightBytes weight_bytes_of(const ModelOptions& options);

// The share, 0 to 1, of a token's multiply-adds in the layers that integer products do on the CPU,
// which round activations to int8. The rest is floating point. Throws Error where the model is not
// supported.
double integer_share(const ModelOptions& options);

}  // namespace quire
