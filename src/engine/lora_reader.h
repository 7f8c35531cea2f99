#pragma once
// Reads a LoRA adapter for serving: from PEFT's folder to the weights that ranks take.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/lora_weights.h"
#include "loader/model_config.h"
#include "loader/quantization_config.h"
#include "runner/gpu_lora_slots.h"

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
  // The ranks of a CPU in this process hold trained copies of matrices in main memory: the type of
  // these, how many ranks hold that of the embedding, whole, and how many processes have shares of
  // the others.
  DType copy_dtype = DType::kFloat32;
  int num_embedding_ranks = 1;
  int num_sharing_processes = 1;
  // The bytes of main memory that can be taken; empty: any number.
  std::function<int64_t()> memory_left = {};
  // On GPUs: what trained copies of modules' matrices take on the GPU that has most of them, and
  // the room that there is on each. Empty on the CPU.
  std::function<GpuLoraCopies::Needs(std::span<const std::string> modules)> gpu_needs = {};
  int64_t gpu_room = 0;
};

LoraTarget lora_target(const std::filesystem::path& model, const ModelConfig& config,
                       bool has_weights, int64_t max_rank);
// Of an engine that serves adapters, or of its part on another node.
LoraTarget lora_target(const EngineSetup& setup);

// All of LoraWeights except its id. Throws Error where the folder holds no adapter, or one that is
// damaged, does not fit the model, has a rank above max_rank, or cannot be served: DoRA of an
// embedding or output layer that is not dense, and trained biases where the base's are not. Trained
// copies of matrices (modules_to_save) are refused where memory_left is less than they take here
// and, packed, on the ranks of a CPU; or where GPUs have less room for them, or no kernel.
LoraWeights read_lora(const std::filesystem::path& folder, const LoraTarget& target);
// The modules whose matrices the adapter has trained copies of. Throws as read_lora() does.
std::vector<std::string> trained_copies(const std::filesystem::path& folder,
                                        const LoraTarget& target);

}  // namespace quire
