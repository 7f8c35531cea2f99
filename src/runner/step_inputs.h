#pragma once
// The arrays of one step on a GPU, uploaded at once.
//
// All arrays of a step lie one after the other in one piece of pinned memory, and in the same
// places in one piece of the GPU's. Steps of one StepShape have one layout, so a captured graph
// finds its inputs where the last step of that shape had them. Thread safety: one thread, the
// rank's worker.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/forward_batch.h"
#include "ops/cuda/kernels.h"

namespace quire {

// Biases and masks that the rows of one step have on a GPU, at most.
inline constexpr int64_t kMaxStepBiases = 8192;

struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_seqs = 0;
  int64_t table_width = 0;  // blocks of the longest sequence, or more
  int64_t num_logits = 0;
  int64_t num_decode_items = 0;  // room for
  bool adjusts_logits = false;   // some rows have biases or penalties
  bool operator==(const StepShape&) const = default;
};

// Pointers to a step's arrays, in the host's memory or the GPU's. What is not in ForwardBatch or
// ops/cuda/kernels.h (CudaSample) says the same there.
struct StepArrays {
  int32_t* token_ids;
  int32_t* token_sources;  // of CudaResolveTokens
  int32_t* positions;
  int64_t* slot_mapping;
  int32_t* query_start;
  int32_t* context_lens;
  int32_t* block_tables;
  int32_t* logits_rows;
  ops::DecodeItem* decode_items;
  int32_t* num_decode_items;
  float* temperature;
  int32_t* top_k;
  float* top_p;
  float* min_p;
  uint32_t* noise_keys;
  // Of CudaAdjustLogits; null where the step adjusts none. There is room for kMaxStepBiases.
  float* repetition_penalty = nullptr;
  float* presence_penalty = nullptr;
  float* frequency_penalty = nullptr;
  int32_t* row_seqs = nullptr;
  int32_t* num_prompt_tokens = nullptr;
  int32_t* bias_start = nullptr;
  int32_t* bias_ids = nullptr;
  float* biases = nullptr;
};

class StepInputs {
 public:
  // For steps of at most `largest` in each of its numbers.
  StepInputs(DeviceLibrary& library, const Device& device, const StepShape& largest);

  // On the GPU.
  static size_t bytes(const StepShape& shape);

  // The host's arrays for a step of this shape, to be filled before upload(). Those of the step
  // kRing steps ago are overwritten.
  StepArrays next(const StepShape& shape);
  // Queues the copy of what next() gave. Returns the arrays on the GPU.
  StepArrays upload(DeviceStream& stream);

  // Steps whose host arrays live on at once: more than an engine has in flight.
  static constexpr size_t kRing = 4;

 private:
  std::vector<std::unique_ptr<PinnedBuffer>> ring_;
  size_t current_ = 0;
  StepShape shape_;
  Buffer device_;
};

// The GPU's arrays as the model takes them.
ForwardBatch to_forward_batch(const StepArrays& arrays, const StepShape& shape);

}  // namespace quire
