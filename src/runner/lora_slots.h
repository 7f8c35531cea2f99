#pragma once
// The adapters that a rank on the CPU has ready to compute with: as many as may run in one step.
//
// A rank prepares its share of an adapter when the adapter's first step comes. The share replaces
// the least recently used one and stays until it is replaced, even if no request uses the adapter
// any more. All ranks run the same steps, so they hold the same adapters. Thread safety: one
// thread, the rank's worker.
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "layers/lora_layers.h"
#include "layers/lora_step.h"
#include "models/model.h"
#include "runner/sequence_table.h"

namespace quire {

class LoraSlots {
 public:
  // For at most max_loras adapters of at most max_rank in a step of `model`. `pool` is for the
  // threads that pack adapters. Both must outlive this.
  LoraSlots(const Model& model, int max_loras, int64_t max_rank, DType dtype, ThreadPool& pool);

  // Bytes of slots and scratch, at most, without adapters' trained copies of matrices.
  static size_t bytes(const Model& model, int max_loras, int64_t max_rank, DType dtype);

  // The adapters of a step's rows; null where no row has one. Valid until the next call.
  const LoraStep* prepare(std::span<const StepSequence> sequences, int64_t num_tokens);

 private:
  struct Slot {
    uint64_t last_step = 0;
    LoraLayers layers;
  };

  const LoraLayers& take(const Request& request);
  void make_room();

  LoraSites sites_;
  size_t max_loras_;
  DType dtype_;
  ThreadPool& pool_;
  Arena scratch_;
  uint64_t step_ = 0;
  std::unordered_map<uint64_t, Slot> slots_;  // by LoraWeights::id
  std::optional<LoraStep> current_;
};

}  // namespace quire
