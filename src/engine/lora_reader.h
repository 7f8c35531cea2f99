#pragma once
// Reads a LoRA adapter for a model that is served: from PEFT's folder to the weights that ranks
// take.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/lora_weights.h"
#include "loader/model_config.h"

namespace quire {

// The model that adapters are for.
struct LoraTarget {
  std::filesystem::path model;  // its folder, or GGUF file
  bool has_tied_head = false;   // its embedding is its output layer, too
  bool has_weights = true;      // not with dummy weights
  // Names and shapes of what its checkpoint would have if it was dense; no data.
  std::vector<CheckpointTensor> tensors = {};
  int64_t max_rank = 0;
  bool on_gpu = false;
};

LoraTarget lora_target(const std::filesystem::path& model, const ModelConfig& config,
                       bool has_weights, int64_t max_rank);

// All of LoraWeights but its id. Throws Error where the folder holds no adapter, one that is
// damaged or does not fit the model, a larger rank than max_rank, or what is not served: trained
// copies (modules_to_save) of other modules than norms, and DoRA or trained biases where the
// model's own weights beneath are not dense. For GPUs also what they have no kernels for: all but
// matrices of linear layers within the model.
LoraWeights read_lora(const std::filesystem::path& folder, const LoraTarget& target);

}  // namespace quire
