#pragma once
// The adapters that a rank on the CPU holds ready to compute with: as many as may run in one step.
//
// An adapter's share is made when its first step comes, in the place of the one that was used
// longest ago; it stays there, also when no request has the adapter any more, until another one
// takes its place. All ranks run the same steps, so they hold the same adapters. Thread safety: one
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
  // For at most max_loras adapters of at most max_rank in a step of `model`, which outlives this.
  // So does `pool`, whose threads pack them.
  LoraSlots(const Model& model, int max_loras, int64_t max_rank, DType dtype, ThreadPool& pool);

  // What slots and scratch take.
  static size_t bytes(const Model& model, int max_loras, int64_t max_rank, DType dtype);

  // The adapters of a step's rows; nothing where all are the base's. Holds until the next call.
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
