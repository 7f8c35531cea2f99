#pragma once
// Reads a LoRA adapter for serving: from PEFT's folder to the weights that ranks take.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/lora_weights.h"
#include "loader/model_config.h"
#include "loader/quantization_config.h"

namespace quire {

struct EngineSetup;  // engine/engine_setup.h

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
  // Of the ranks in this process, which hold trained copies of matrices: the type of these, how
  // many ranks hold that of the embedding, whole, and how many processes have shares of the others.
  DType copy_dtype = DType::kFloat32;
  int num_embedding_ranks = 1;
  int num_sharing_processes = 1;
  // The bytes of main memory that can be taken; empty: any number.
  std::function<int64_t()> memory_left = {};
};

LoraTarget lora_target(const std::filesystem::path& model, const ModelConfig& config,
                       bool has_weights, int64_t max_rank, bool on_gpu = false);
// Of an engine that serves adapters, or of its part on another node.
LoraTarget lora_target(const EngineSetup& setup);

// All of LoraWeights except its id. Throws Error where the folder holds no adapter, or one that is
// damaged, does not fit the model, has a rank above max_rank, or cannot be served: on GPUs trained
// copies (modules_to_save) of modules other than norms, DoRA of an embedding or output layer that
// is not dense, and trained biases where the base's are not. On the CPU trained copies of matrices
// are refused where memory_left is less than they take here and, packed, on the ranks.
LoraWeights read_lora(const std::filesystem::path& folder, const LoraTarget& target);

}  // namespace quire
