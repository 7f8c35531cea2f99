#pragma once
// Log-probabilities of a step's tokens, found on the GPU, so that rows of logits stay there.
//
// Thread safety: one thread, the rank's worker; reading is free.
#include <cstdint>
#include <memory>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/tensor.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"
#include "request/scheduled_batch.h"
#include "runner/batch_builder.h"
#include "runner/prompt_logprobs.h"

namespace quire {

// Results of `rows` rows, one array after the other in 4-byte words, each a multiple of 16 bytes.
struct LogprobsLayout {
  int64_t rows = 0;
  int num_top = 0;

  int64_t padded_rows() const { return (rows + 3) / 4 * 4; }
  int64_t ranks() const { return padded_rows(); }  // behind the tokens' log-probabilities
  int64_t top_ids() const { return 2 * padded_rows(); }
  int64_t top_logprobs() const { return (2 + num_top) * padded_rows(); }
  int64_t bytes() const { return 4 * (2 + 2 * num_top) * padded_rows(); }
};

class GpuLogprobs {
 public:
  // For steps of at most `max_rows` rows and `max_top` of the best tokens each.
  GpuLogprobs(const Device& device, int64_t max_rows, int max_top)
      : results_(bytes(max_rows, max_top), device) {}
  // On the GPU, and of the pinned memory of one step's results.
  static size_t bytes(int64_t max_rows, int max_top) {
    return static_cast<size_t>(LogprobsLayout{max_rows, max_top}.bytes());
  }

  // Queues the search for token_ids[i] (on the GPU) in row i of `logits`, and the copy of what is
  // found to `pinned`. `scratch`: as CudaLogprobs has it.
  void find(const ops::CudaKernels& kernels, DeviceStream& stream, const Tensor& logits,
            const int32_t* token_ids, const LogprobsLayout& layout, void* scratch,
            std::byte* pinned);

  // What find() left for a row once its copy has arrived: `token_id`, which was looked for, then
  // the num_top best.
  static TokenLogprobs read(const std::byte* pinned, const LogprobsLayout& layout, int64_t row,
                            int32_t token_id, int num_top);

 private:
  Buffer results_;
};

// On the GPU: rows of the hidden state that predict prompt tokens, these tokens, and the rows'
// adapter.
class PromptIds {
 public:
  // For at most `max_rows` rows at a time.
  PromptIds(DeviceLibrary& library, const Device& device, int64_t max_rows);
  // On the GPU.
  static size_t bytes(int64_t max_rows);

  // Waits for the GPU, which may read what was uploaded before, and queues the copy. lora_slot: of
  // the rows, -1 where they have no adapter.
  void upload(DeviceStream& stream, const PromptRows& prompt, int32_t lora_slot);
  int32_t* rows() const { return on_device_.rows; }
  int32_t* targets() const { return on_device_.targets; }
  // The rows of the logits of `prompt`, which was uploaded.
  ops::CudaLoraRows lora_rows(const PromptRows& prompt) const;

 private:
  struct Arrays {
    int32_t* rows = nullptr;
    int32_t* targets = nullptr;
    ops::LoraItem* items = nullptr;
    int32_t* num_items = nullptr;
  };
  static Arrays lay_out(ArrayLayout& layout, int64_t max_rows);
  static Arrays lay_out_at(std::byte* base, int64_t max_rows);

  Buffer device_;
  Arrays on_device_;
  std::unique_ptr<PinnedBuffer> pinned_;
  Arrays on_host_;
};

}  // namespace quire
