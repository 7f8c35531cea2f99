#pragma once
// The tensors of a checkpoint. A folder has one model.safetensors, or shards with
// model.safetensors.index.json; where it has both, model.safetensors is read, as transformers does.
// A GGUF file's tensors get the names and shapes that a folder's would have.
//
// Files are mapped, never copied: a tensor is a view of the file, valid as long as the Checkpoint.
// When the checkpoint is opened every header is checked: size, JSON, dtypes, shapes, offsets inside
// the file, no overlap, no gap, no duplicate names, index and shards agree. A fault is an Error
// with the file, the tensor and what was expected. Thread safety: const use is free.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace quire {

struct CheckpointTensor {
  std::string name;         // as a folder's checkpoint has it
  std::string stored_name;  // as a GGUF file has it; else empty
  std::string file;         // for error messages
  std::string dtype;        // as the file spells it: "BF16", "F32", "F16", "I64", ...; "Q4_K", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // read-only, any alignment
  size_t bytes = 0;
  // Not 0: in a GGUF file the rows of each of this many heads are in the order of ggml's rotary
  // embedding, in which the two elements of a rotated pair are neighbours.
  int64_t rotary_heads = 0;

  // The place in the file of a row of the tensor.
  int64_t stored_row(int64_t row) const;
  // The name that the file uses, for error messages.
  const std::string& name_in_file() const { return stored_name.empty() ? name : stored_name; }
  // "[2, 64] BF16".
  std::string describe() const;
};

class Checkpoint {
 public:
  // A folder, or a GGUF file.
  static Checkpoint open(const std::filesystem::path& model);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // In the order of the files.
  const std::vector<CheckpointTensor>& tensors() const;
  const CheckpointTensor* find(std::string_view name) const;
  // For error messages: where the model's sizes come from, "config.json" or "the file's metadata";
  // and the name that the files use, or would use, for a tensor.
  std::string_view config_name() const;
  std::string name_in_files(const std::string& name) const;
  // Of all tensors together.
  size_t total_bytes() const;
  // Tells the system that this part of the mapped file was used and may leave memory.
  void release(const CheckpointTensor& tensor) const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
