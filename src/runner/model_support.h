#pragma once
// What a model's config says without its weights: is it supported, how large is it, what does it
// cost.
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

// The reason, as a sentence; nothing where the model is supported.
std::optional<std::string> why_unsupported(const ModelConfig& config);

// Which of the model's linear layers are quantised, and how; empty where the checkpoint does not
// say that any is.
std::string describe_quantization(const ModelConfig& config);

// Parameters in all tensors that a checkpoint of this model must hold; scales of quantised ones are
// none. Throws Error where the model is not supported.
int64_t count_parameters(const ModelOptions& options);
int64_t count_parameters(const ModelConfig& config);

// Names and shapes of what a checkpoint of this model must hold where nothing is quantised, without
// data. Throws Error where the model is not supported.
std::vector<CheckpointTensor> dense_tensors(const ModelConfig& config);

// See quire/benchmark.h. In floating point, so that a config of absurd sizes does not overflow.
// Throws Error where the model is not supported.
ModelCost cost_of(const ModelOptions& options, DType kv_cache_dtype);

// Of the matrices that a step reads, in bytes. Throws Error where the model is not supported.
struct WeightBytes {
  double layers = 0;
  double output_layer = 0;
};
WeightBytes weight_bytes_of(const ModelOptions& options);

// What part of the multiply-adds of a token's layers is done by products with integers, which round
// activations to int8, on the CPU: from 0 to 1. The rest is done in floating point. Throws Error
// where the model is not supported.
double integer_share(const ModelOptions& options);

}  // namespace quire
