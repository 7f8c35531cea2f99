#pragma once
// The arrays of one step on a GPU, uploaded at once.
//
// All arrays of a step lie one after the other in one piece of pinned memory, and in the same
// places of one piece of GPU memory. Steps of one StepShape have the same layout (biases, whose
// number may differ, come last), so a captured graph finds its inputs where the last step of that
// shape had them. Thread safety: one thread, the rank's worker.
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

// The most biases and masked ids that the rows of one step may have on a GPU.
inline constexpr int64_t kMaxStepBiases = 8192;

struct StepShape : BatchShape {
  int64_t num_decode_seqs = 0;  // ForwardBatch's, as the next
  int64_t max_decode_queries = 1;
  int64_t num_decode_items = 0;  // room for
  int64_t num_decode_rows = 0;   // room for; ForwardBatch's
  bool adjusts_logits = false;   // some rows have biases or penalties
  int64_t num_biases = 0;        // 0 where adjusts_logits is false
  int64_t num_lora_items = 0;    // room for; 0: no row has an adapter
  // The same of rows of logits; 0: no adapter changes them beyond the hidden state.
  int64_t num_lora_logits_items = 0;
  bool orders_lora_rows = false;  // some have an adapter with trained copies
  bool operator==(const StepShape&) const = default;
};

// Of ops::CudaLoraRows; null where no row has an adapter.
struct LoraRowArrays {
  ops::LoraItem* items = nullptr;
  int32_t* num_items = nullptr;
  int32_t* rows = nullptr;
};

// Of LoraRowOrder; null where no row has an adapter with trained copies.
struct LoraOrderArrays {
  int32_t* rows = nullptr;
  int64_t* wide_rows = nullptr;
};

// A step's arrays on a GPU, or in the pinned memory that is copied there. ForwardBatch and
// ops/cuda/kernels.h (CudaSample) describe the fields that have no comment here.
struct StepArrays : BatchArrays {
  int32_t* token_sources = nullptr;  // of CudaResolveTokens
  ops::DecodeItem* decode_items = nullptr;
  int32_t* num_decode_items = nullptr;
  float* temperature = nullptr;
  int32_t* top_k = nullptr;
  float* top_p = nullptr;
  float* min_p = nullptr;
  uint32_t* noise_keys = nullptr;
  LoraRowArrays loras = {};        // of the step's rows
  LoraRowArrays lora_logits = {};  // of its rows of logits
  LoraOrderArrays lora_order = {};
  LoraOrderArrays lora_logits_order = {};
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
  // `largest`: the largest value of each size. `num_arrays`: how many steps' host arrays exist at
  // once, more than an engine has in flight.
  StepInputs(DeviceLibrary& library, const Device& device, const StepShape& largest,
             size_t num_arrays);

  // On the GPU.
  static size_t bytes(const StepShape& shape);

  // The host's arrays for a step of this shape, to be filled before upload(). They overwrite those
  // of the step num_arrays() steps ago.
  StepArrays next(const StepShape& shape);
  // Queues the copy of the arrays that next() returned. Returns the arrays on the GPU.
  StepArrays upload(DeviceStream& stream);

  size_t num_arrays() const { return ring_.size(); }

 private:
  std::vector<std::unique_ptr<PinnedBuffer>> ring_;
  size_t current_ = 0;
  StepShape shape_;
  Buffer device_;
};

// The GPU's arrays in the form that the model takes. Leaves attention_scratch to the caller.
ForwardBatch gpu_forward_batch(const StepArrays& arrays, const StepShape& shape);

}  // namespace quire
