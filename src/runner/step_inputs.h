#pragma once
// The arrays of one step on a GPU, uploaded at once.
//
// All arrays of a step lie one after the other in one piece of pinned memory, and in the same
// places in one piece of the GPU's. Steps of one StepShape have one layout, but for the number of
// biases, which come last: so a captured graph finds its inputs where the last step of that shape
// had them. Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/forward_batch.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"
#include "runner/batch_builder.h"

namespace quire {

// Biases and masks that the rows of one step have on a GPU, at most.
inline constexpr int64_t kMaxStepBiases = 8192;

struct StepShape : BatchShape {
  int64_t num_decode_seqs = 0;  // ForwardBatch's, as the next
  int64_t max_decode_queries = 1;
  int64_t num_decode_items = 0;  // room for
  int64_t num_decode_rows = 0;   // room for; ForwardBatch's
  bool adjusts_logits = false;   // some rows have biases or penalties
  int64_t num_biases = 0;        // 0 where adjusts_logits is false
  int64_t num_lora_items = 0;    // room for; 0: no row has an adapter
  bool operator==(const StepShape&) const = default;
};

// Arrays of a step on a GPU, or of the pinned memory that is copied there. What is not in
// ForwardBatch or ops/cuda/kernels.h (CudaSample) says the same there.
struct StepArrays : BatchArrays {
  int32_t* token_sources = nullptr;  // of CudaResolveTokens
  ops::DecodeItem* decode_items = nullptr;
  int32_t* num_decode_items = nullptr;
  float* temperature = nullptr;
  int32_t* top_k = nullptr;
  float* top_p = nullptr;
  float* min_p = nullptr;
  uint32_t* noise_keys = nullptr;
  // Of CudaLoraRows; null where no row has an adapter.
  ops::LoraItem* lora_items = nullptr;
  int32_t* num_lora_items = nullptr;
  int32_t* lora_rows = nullptr;
  // Of CudaAdjustLogits; null where the step adjusts none.
  float* repetition_penalty = nullptr;
  float* presence_penalty = nullptr;
  float* frequency_penalty = nullptr;
  int32_t* row_seqs = nullptr;
  int32_t* num_prompt_tokens = nullptr;
  int32_t* history_lens = nullptr;
  int32_t* bias_start = nullptr;
  ops::TokenBias* biases = nullptr;
};

StepArrays lay_out_step(ArrayLayout& layout, const StepShape& shape);

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

// The GPU's arrays as the model takes them. Leaves attention_scratch to the caller.
ForwardBatch gpu_forward_batch(const StepArrays& arrays, const StepShape& shape);

}  // namespace quire
