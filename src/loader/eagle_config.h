#pragma once
// An EAGLE or EAGLE-3 head's folder: a small decoder that makes drafts for a target model from that
// model's hidden states.
//
// Of EAGLE-3 both published forms are read: a config.json of architecture LlamaForCausalLMEagle3
// (or Eagle3...), and that of the speculators package, whose sizes are in transformer_layer_config.
// Of EAGLE it is a config.json of architecture LlamaForCausalLM, Qwen3ForCausalLM or Eagle... Which
// tensors the checkpoint has says what is the head's own and what it shares with the target. What
// is missing, wrong or not supported is an Error naming file, field and what is expected. Thread
// safety: plain values and free functions.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/model_config.h"

namespace quire {

// The inputs of this many of the target's layers may go into a head.
inline constexpr size_t kMaxAuxLayers = 8;

enum class EagleKind {
  kEagle,   // reads the target's last hidden state, behind its final norm
  kEagle3,  // reads the inputs of some of the target's layers
};

struct EagleConfig {
  EagleKind kind = EagleKind::kEagle3;
  // Sizes of the head's layers; its vocab_size is the target's.
  ModelConfig layers;
  int64_t target_hidden_size = 0;
  int64_t draft_vocab_size = 0;
  // The target's layers whose inputs the head sees, ascending; of EAGLE the number of its layers,
  // which stands for the input of its output layer.
  std::vector<int64_t> aux_layers;
  // The first layer's residual is the hidden state after hidden_norm, not before it.
  bool norm_before_residual = false;
  // What the checkpoint has beside what each has. Without an embedding or an output layer of its
  // own the head takes the target's.
  bool has_embedding = false;
  bool has_output_table = false;
  bool qk_norm = false;
  bool fc_bias = false;
  std::string first_layer = "midlayer";  // how its name begins: or "layers.0"
  // By draft id, the target's; empty: the same ids.
  std::vector<int32_t> draft_ids;
};

// Of the head in `folder`, for a target of this config.
EagleConfig load_eagle_config(const std::filesystem::path& folder, EagleKind kind,
                              const ModelConfig& target);

// What config.json says, from bytes, for tests and fuzzing; `name` stands for the file in messages.
// The fields that the checkpoint decides are left out.
EagleConfig parse_eagle_config(std::string_view json, const std::string& name, EagleKind kind,
                               const ModelConfig& target);

// Adds what the checkpoint decides.
void add_eagle_tensors(const Checkpoint& checkpoint, EagleConfig& config);

// Of the head in `folder`, which may be a config.json only, for random weights: what the checkpoint
// would decide is as in most published heads, which share the model's embedding. Those of EAGLE-3
// have a layer of their own for logits and the first of the model's ids, and those of EAGLE share
// the model's.
EagleConfig load_dummy_eagle_config(const std::filesystem::path& folder, EagleKind kind,
                                    const ModelConfig& target);

}  // namespace quire
