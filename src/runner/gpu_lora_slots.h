#pragma once
// Which adapters lie in the slots of a rank's GPU, and which rows of a step have which.
//
// A step whose adapters have trained copies of matrices, or of norms of queries and keys, is
// ordered by slots on the host, which runs it without a graph (layers/gpu_lora_copies.h).
//
// An adapter is copied to the GPU when its first step comes, to the slot that was used longest ago.
// All ranks run the same steps, so they hold the same adapters. They copy together, while no GPU
// works: the copy's host memory is pinned and let go, which may wait for all GPUs, and one of them
// could wait for a rank that has to copy yet.
//
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "core/device_library.h"
#include "dist/communicator.h"
#include "layers/gpu_lora.h"
#include "models/model.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

// The adapters of a step.
struct StepLoras {
  // The slot of each of the step's rows, -1 where it has no adapter; empty where none has.
  std::vector<int32_t> row_slots = {};
  LoraExtras extras = {};  // of all of them

  bool any() const { return !row_slots.empty(); }
};

// The groups of a step's rows, and of its rows of logits.
struct LoraGroups {
  std::vector<LoraRowGroup> tokens = {};
  std::vector<LoraRowGroup> logits = {};
};

class GpuLoraSlots {
 public:
  // For at most options.max_loras adapters of at most options.max_lora_rank in a step of `model`.
  // `pool`, whose threads write them for the copy, outlives this.
  GpuLoraSlots(const Model& model, const RunnerOptions& options, const Device& device,
               ThreadPool& pool);

  const GpuLora& adapters() const { return adapters_; }
  // Of the device's memory.
  static size_t bytes(const Model& model, const RunnerOptions& options);

  // Where an adapter is to be copied, waits for the stream's work, for all ranks, and for all their
  // copies.
  StepLoras place(std::span<const StepSequence> sequences, int64_t num_tokens, DeviceStream& stream,
                  Communicator& comm);
  // A step whose arrays on the GPU are these; groups as fill_lora_order() returned them.
  GpuLoraStep step(const StepArrays& arrays, const StepShape& shape, LoraGroups groups,
                   const LoraExtras& extras) const;
  // What computes only logits, of these rows, which all have the slot.
  GpuLoraStep logits_step(const ops::CudaLoraRows& logits, int32_t slot,
                          const LoraExtras& extras) const;

 private:
  struct Slot {
    uint64_t id = 0;  // LoraWeights', 0: empty
    uint64_t last_step = 0;
  };

  // The slot that has the adapter; null where none has.
  Slot* find(uint64_t id);
  int32_t take(const Request& request);

  GpuLora adapters_;
  ThreadPool& pool_;
  uint64_t step_ = 0;
  std::vector<Slot> slots_;
};

// Items that hold any `num_rows` rows of at most max_loras adapters.
int64_t lora_item_room(int64_t num_rows, int64_t max_loras);

// Says in a step's shape what room its adapters' arrays have; none where there are no adapters.
void shape_lora_items(const StepLoras& loras, int64_t max_loras, StepShape& shape);
// Writes a step's rows into its arrays, slot by slot, and its rows of logits where the shape has
// room for them. Rows after those of `row_slots` have no adapter.
void fill_lora_items(std::span<const int32_t> row_slots, const StepShape& shape,
                     const StepArrays& arrays);
// The same of LoraRowOrder's arrays, of a shape with orders_lora_rows; returns the rows' groups.
LoraGroups fill_lora_order(std::span<const int32_t> row_slots, const StepShape& shape,
                           const StepArrays& arrays);

// What trained copies of modules' matrices take of a slot, on the rank of the model that has most.
GpuLoraCopies::Needs lora_copy_needs(const ModelOptions& model, int num_stages,
                                     std::span<const std::string> modules);

}  // namespace quire
