#pragma once
// A LoRA adapter: the folder that Hugging Face's PEFT writes, with adapter_config.json and
// adapter_model.safetensors.
//
// Tensors are views of the file, mapped or read, valid as long as the adapter. When it is opened,
// names, shapes and dtypes are compared with each other and with the config; loader/lora_base.h
// compares them with a base model. A fault is an Error with the file, the tensor and what was
// expected. Thread safety: const use is free.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/regular_file.h"
#include "loader/checkpoint.h"
#include "loader/lora_config.h"

namespace quire {

// An addition to a matrix W [outputs, inputs] of the module: scale * B A; for an embedding the
// transpose of that, because an embedding's rows are its inputs. With a magnitude (DoRA) the rows
// of the sum (for an embedding its columns) are then scaled to have these norms.
struct LoraModule {
  std::string name;           // "model.layers.0.self_attn.q_proj"
  bool is_embedding = false;  // saved as lora_embedding_A and _B
  int64_t rank = 0;
  double scale = 0;
  const CheckpointTensor* a = nullptr;          // [rank, inputs]
  const CheckpointTensor* b = nullptr;          // [outputs, rank]
  const CheckpointTensor* b_bias = nullptr;     // [outputs]: times scale, it is added to the bias
  const CheckpointTensor* magnitude = nullptr;  // [outputs]

  int64_t inputs() const { return a->shape[1]; }
  int64_t outputs() const { return b->shape[0]; }
};

// "[8, 64]".
std::string shape_text(const std::vector<int64_t>& shape);

class LoraAdapter {
 public:
  // Maps the weights, for tools. If the file shrinks meanwhile, the process ends (MappedFile).
  static LoraAdapter open(const std::filesystem::path& folder);
  // Reads the weights into memory, for servers. If the file is written to meanwhile, that is an
  // Error; later writes change nothing.
  static LoraAdapter read(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const LoraConfig& config() const { return config_; }
  // In the order of their names.
  const std::vector<LoraModule>& modules() const { return modules_; }
  const LoraModule* find(std::string_view module) const;
  // Tensors that replace one of the base model's, by that one's name ("lm_head.weight"): trained
  // copies (modules_to_save), biases, and embeddings that were saved whole.
  const std::map<std::string, const CheckpointTensor*, std::less<>>& replaced() const {
    return replaced_;
  }
  size_t total_bytes() const { return total_bytes_; }
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  // "FILE: the tensor NAME", which opens messages.
  std::string at(const CheckpointTensor& tensor) const;
  // The file of the weights.
  std::string file() const;

 private:
  explicit LoraAdapter(const std::filesystem::path& folder);
  void take(std::span<const std::byte> content);
  void sort_tensors();
  void add_replaced(const CheckpointTensor& tensor, std::string name);
  void check_modules();
  void check_parts(const LoraModule& module) const;
  void check_shapes(const LoraModule& module) const;
  void check_saved_modules() const;
  std::string config_file() const;

  std::filesystem::path folder_;
  LoraConfig config_;
  std::optional<MappedFile> mapped_;  // or:
  FileBytes read_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<LoraModule> modules_;
  std::map<std::string, const CheckpointTensor*, std::less<>> replaced_;
  size_t total_bytes_ = 0;
};

}  // namespace quire
