#pragma once
// Whether an adapter fits its base model.
//
// Thread safety: free functions; the calling thread owns `pool`.
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "loader/lora_adapter.h"

namespace quire {

// The checkpoint of a dense base model.
struct LoraBase {
  const std::vector<CheckpointTensor>& tensors;
  std::string name;            // for messages
  bool has_tied_head = false;  // its embedding is its output layer, too

  // The tensor of this name; for a tied output layer that of the embedding. Null: there is none.
  const CheckpointTensor* find(const std::string& tensor) const;
};

// Throws Error where the adapter has weights of a module that the base lacks, or of other shapes;
// where it lacks weights of a module that its config targets; where one of its numbers is not
// finite; and where the base's weights that it adds to are not float32, float16 or bfloat16.
void check_lora_fits(const LoraAdapter& adapter, const LoraBase& base, ThreadPool& pool);

}  // namespace quire
