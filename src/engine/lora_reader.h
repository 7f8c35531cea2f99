#pragma once
// Reads a LoRA adapter for serving: from PEFT's folder to the weights that ranks take.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/lora_weights.h"
#include "loader/model_config.h"
#include "loader/quantization_config.h"

namespace quire {

// The model that adapters are for.
struct LoraTarget {
  std::filesystem::path model;  // its folder, or GGUF file
  bool has_tied_head = false;   // its embedding is its output layer, too
  bool has_weights = true;      // not with dummy weights
  // Names and shapes of the tensors that its checkpoint would have if it were dense; no data.
  std::vector<CheckpointTensor> tensors = {};
  std::optional<QuantizationConfig> quantization = {};  // of its checkpoint
  int64_t max_rank = 0;
  bool on_gpu = false;  // its ranks
};

LoraTarget lora_target(const std::filesystem::path& model, const ModelConfig& config,
                       bool has_weights, int64_t max_rank, bool on_gpu = false);

// All of LoraWeights except its id. Throws Error where the folder holds no adapter, or one that is
// damaged, does not fit the model, has a rank above max_rank, or cannot be served: on GPUs trained
// copies (modules_to_save) of modules other than norms, DoRA of an embedding or output layer that
// is not dense, and trained biases where the base's are not.
LoraWeights read_lora(const std::filesystem::path& folder, const LoraTarget& target);

}  // namespace quire
