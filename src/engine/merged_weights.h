#pragma once
// A base model's weights with those of a LoRA adapter merged into them, as they are written.
//
// Each number is computed in float32 and rounded once, to the type that the base has it in. A few
// rows are in memory at a time. Thread safety: one thread at a time, which runs the loops.
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
  // Whether a tied output layer has become a tensor of its own, as it is no longer the embedding.
  bool untied = false;

  int64_t num_changed() const;
  size_t bytes() const;
};

// The adapter fits the base, as check_lora_fits() says. Both outlive the plan. Throws Error where a
// bias of lora_B is for a layer that has none.
MergePlan plan_merge(const LoraAdapter& adapter, const LoraBase& base);

// Called with the bytes that were written since.
using MergeProgress = std::function<void(size_t bytes)>;

// Writes the weights into `folder`. Throws Error where a merged number is beyond what its type
// holds, and where a file cannot be written; WorkEnded where the loops throw it.
void write_merged(const MergePlan& plan, const Checkpoint& base,
                  const std::filesystem::path& folder, const EndableLoops& loops,
                  const MergeProgress& progress);

}  // namespace quire
