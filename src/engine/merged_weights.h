#pragma once
// A base model's weights with a LoRA adapter merged into them, computed as they are written.
//
// Each number is computed in float32 and rounded once, to the base's type. Only a few rows are in
// memory at a time. Thread safety: one thread at a time, which runs the loops.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/lora_adapter.h"
#include "loader/lora_base.h"
#include "quantise/endable_loops.h"

namespace quire {

struct MergedTensor {
  std::string name;
  const CheckpointTensor* base = nullptr;    // its shape and type are the merged tensor's
  const CheckpointTensor* source = nullptr;  // the base's, or the adapter's in its place
  const LoraModule* module = nullptr;        // what is added to it; null: nothing
  bool is_bias = false;                      // then lora_B's bias is

  bool is_changed() const { return source != base || module != nullptr; }
};

struct MergePlan {
  std::vector<MergedTensor> tensors;  // in the order of the base's
  // Whether a tied output layer became a tensor of its own because it differs from the embedding
  // now.
  bool untied = false;

  int64_t num_changed() const;
  size_t bytes() const;
};

// The adapter must fit the base (check_lora_fits()). Both must outlive the plan. Throws Error where
// the adapter has a bias of lora_B for a layer without a bias.
MergePlan plan_merge(const LoraAdapter& adapter, const LoraBase& base);

// Called with the number of bytes written since the last call.
using MergeProgress = std::function<void(size_t bytes)>;

// Writes the weights into `folder`. Throws Error where a merged number does not fit its type, and
// where a file cannot be written; WorkEnded where the loops throw it.
void write_merged(const MergePlan& plan, const Checkpoint& base,
                  const std::filesystem::path& folder, const EndableLoops& loops,
                  const MergeProgress& progress);

}  // namespace quire
