#pragma once
// The adapter_config.json of a LoRA adapter, as Hugging Face's PEFT writes it: which modules of a
// model are adapted, with which rank and scale.
//
// Modules are named as in the base model's checkpoint, without ".weight":
// "model.layers.0.self_attn.q_proj". What quire cannot compute is refused when the config is read,
// with the field, its value and what is expected. Thread safety: immutable.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/layer_pattern.h"

namespace quire {

// Modules as target_modules and exclude_modules name them.
struct LoraModuleNames {
  bool all_linear = false;                 // every linear layer but the output layer
  std::vector<std::string> names = {};     // a name, or what it ends with after a dot
  std::vector<LayerPattern> pattern = {};  // at most one, which whole names match

  bool matches(std::string_view module) const;
};

struct LoraConfig {
  std::string base_model;  // base_model_name_or_path; may be empty
  bool rank_stabilised = false;
  bool dora = false;
  bool ensure_weight_tying = false;
  int64_t rank = 8;
  double alpha = 8;
  // For modules that match, in place of rank and alpha; the first that matches counts.
  std::vector<std::pair<LayerPattern, int64_t>> rank_pattern = {};
  std::vector<std::pair<LayerPattern, double>> alpha_pattern = {};
  LoraModuleNames targets = {};
  LoraModuleNames excluded = {};
  std::vector<int64_t> layers = {};               // that are adapted; empty: all
  std::vector<LayerPattern> layers_pattern = {};  // what stands before a layer's number
  std::vector<std::string> modules_to_save = {};  // trained copies

  bool targets_module(std::string_view module) const;
  // Whether the module, or one that contains it, is in modules_to_save.
  bool saves_module(std::string_view module) const;
  int64_t rank_of(std::string_view module) const;
  double alpha_of(std::string_view module) const;
  // The factor of the product of the module's two matrices.
  double scale_of(std::string_view module) const;
  // "LoRA", "rsLoRA", "DoRA", "rsDoRA".
  std::string kind() const;
};

inline constexpr int64_t kMaxLoraRank = 1 << 16;

// Whether the folder is an adapter's: it has an adapter_config.json.
bool is_lora_folder(const std::filesystem::path& folder);

// Throws Error where the folder has no adapter_config.json, or one that cannot be used.
LoraConfig load_lora_config(const std::filesystem::path& folder);

// From bytes, for tests and fuzzing; `name` stands for the file in messages.
LoraConfig parse_lora_config(std::string_view json, const std::string& name);

}  // namespace quire
