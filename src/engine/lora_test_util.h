#pragma once
// Random adapters of tiny checkpoints, as PEFT would write them.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/test_models.h"
#include "loader/model_config.h"
#include "loader/safetensors_test_util.h"
#include "runner/model_support.h"

namespace quire::engine_test {

struct RandomAdapter {
  uint64_t seed = 0;
  int64_t rank = 4;
  std::vector<std::string> modules = {"q_proj",  "k_proj",    "v_proj",   "o_proj",
                                      "up_proj", "gate_proj", "down_proj"};
  float largest = 0.3F;  // of B's numbers; 0: the adapter changes nothing
  bool is_dora = false;
  std::vector<std::string> norms = {};   // trained: "norm", "input_layernorm", ...
  std::vector<std::string> copies = {};  // trained matrices: "lm_head", "embed_tokens", ...
};

// Numbers from -largest to largest.
inline std::string random_floats(std::mt19937_64& random, int64_t count, float largest) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = largest * (static_cast<float>(random() % 2001) / 1000.0F - 1.0F);
  }
  return bytes_of(values);
}

// Writes the adapter of the tiny checkpoint `model`, or of a model's folder, into `folder`.
inline void write_adapter(const std::filesystem::path& folder, const std::string& model,
                          const RandomAdapter& adapter) {
  std::mt19937_64 random(adapter.seed);
  std::vector<FileTensor> tensors;
  const auto add = [&](const std::string& module, int64_t n, int64_t k) {
    const std::string leaf = module.substr(module.rfind('.') + 1);
    const std::string name = "base_model.model." + module;
    if (std::ranges::find(adapter.copies, leaf) != adapter.copies.end()) {
      tensors.push_back({name + ".weight", "F32", {n, k}, random_floats(random, n * k, 0.3F)});
      return;
    }
    if (std::ranges::find(adapter.modules, leaf) == adapter.modules.end()) return;
    const bool is_embedding = leaf == "embed_tokens";
    if (is_embedding) std::swap(n, k);  // a token is a row of the table, and an input
    tensors.push_back({name + (is_embedding ? ".lora_embedding_A" : ".lora_A.weight"),
                       "F32",
                       {adapter.rank, k},
                       random_floats(random, adapter.rank * k, 0.3F)});
    tensors.push_back({name + (is_embedding ? ".lora_embedding_B" : ".lora_B.weight"),
                       "F32",
                       {n, adapter.rank},
                       random_floats(random, n * adapter.rank, adapter.largest)});
    if (!adapter.is_dora) return;
    std::vector<float> magnitudes(static_cast<size_t>(n));
    for (float& magnitude : magnitudes)
      magnitude = 0.5F + static_cast<float>(random() % 1000) / 1e3F;
    tensors.push_back({name + ".lora_magnitude_vector", "F32", {n}, bytes_of(magnitudes)});
  };
  const auto add_norm = [&](const std::string& module, int64_t n) {
    const std::string leaf = module.substr(module.rfind('.') + 1);
    if (std::ranges::find(adapter.norms, leaf) == adapter.norms.end()) return;
    std::vector<float> weights(static_cast<size_t>(n));
    for (float& weight : weights) weight = 0.5F + static_cast<float>(random() % 1000) / 1e3F;
    tensors.push_back({"base_model.model." + module + ".weight", "F32", {n}, bytes_of(weights)});
  };
  const ModelConfig config = load_model_config(golden_models() / model);
  for (const CheckpointTensor& tensor : dense_tensors(config)) {
    if (!tensor.name.ends_with(".weight")) continue;
    const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
    if (tensor.shape.size() == 2) {
      add(module, tensor.shape[0], tensor.shape[1]);
    } else {
      add_norm(module, tensor.shape[0]);
    }
  }
  if (config.tie_word_embeddings) add("lm_head", config.vocab_size, config.hidden_size);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_model.safetensors", std::ios::binary) << to_safetensors(tensors);
  nlohmann::json json = {{"peft_type", "LORA"},
                         {"r", adapter.rank},
                         {"lora_alpha", 2 * adapter.rank},
                         {"use_dora", adapter.is_dora},
                         {"target_modules", adapter.modules}};
  std::vector<std::string> saved = adapter.norms;
  saved.insert(saved.end(), adapter.copies.begin(), adapter.copies.end());
  if (!saved.empty()) json["modules_to_save"] = saved;
  std::ofstream(folder / "adapter_config.json") << json.dump();
}

}  // namespace quire::engine_test
