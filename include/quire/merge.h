#pragma once
// Writes a model with a LoRA adapter merged into its weights: a folder that quire and transformers
// load like any other.
//
// Thread safety: a free function of its arguments and the files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire {

struct MergeOptions {
  std::string model{};          // the base, as EngineConfig::model; a folder
  std::string adapter{};        // a folder
  std::filesystem::path out{};  // a folder to make, or an empty one
  int threads = 0;              // 0: the physical cores
  // Called now and then on the calling thread with the bytes written so far and the bytes of the
  // whole checkpoint. Returning false ends the work.
  std::function<bool(int64_t done, int64_t total)> on_progress{};
};

struct MergeResult {
  std::filesystem::path model;  // what was read
  std::filesystem::path adapter;
  std::filesystem::path out;
  std::string kind;                   // as LoraInfo::kind in quire/lora.h
  int64_t num_merged = 0;             // tensors that the adapter has changed, or replaced
  bool untied = false;                // the embedding and the output layer are two tensors now
  int64_t bytes = 0;                  // of all tensors
  std::vector<std::string> left_out;  // files beside the base's weights, not copied
  std::vector<std::string> adapter_left_out;  // and beside the adapter's
};

// Writes the base's checkpoint with the adapter's weights added, in the base's types; each number
// is computed in float32 and rounded once. Files appear in `out` only when all of them are written.
// Returns nothing where on_progress ended the work; `out` is then unchanged. Throws Error where the
// base or the adapter cannot be read or do not fit together, where the base is quantised or a GGUF
// file, and where `out` is a file or a folder that is not empty, or cannot be written.
std::optional<MergeResult> merge_lora(const MergeOptions& options);

}  // namespace quire
