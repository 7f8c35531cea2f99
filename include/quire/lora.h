#pragma once
// What the folder of a LoRA adapter holds, as Hugging Face's PEFT writes it.
//
// Thread safety: free functions of their arguments and the files.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire {

struct LoraModuleInfo {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t rank = 0;
  double alpha = 0;
  double scale = 0;  // of the product of its two matrices
  int64_t inputs = 0;
  int64_t outputs = 0;
};

struct LoraInfo {
  std::string folder;
  std::string kind;        // "LoRA", "rsLoRA", "DoRA" or "rsDoRA"
  std::string base_model;  // as its config names it; may be empty
  std::vector<LoraModuleInfo> modules;
  std::vector<std::string> replaced;  // tensors of the base that it has its own of, biases too
  std::string dtype;                  // of its weights: "F32", "BF16, F32"
  int64_t num_parameters = 0;
  int64_t bytes = 0;  // of all tensors
};

// Whether the folder holds an adapter, and no model.
bool is_lora_adapter(const std::string& folder);

// Reads headers only. Throws Error if the folder holds no adapter, a damaged one, or one of a kind
// that quire does not read.
LoraInfo inspect_lora(const std::string& folder);

}  // namespace quire
