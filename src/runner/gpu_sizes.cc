#include "runner/gpu_sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ceil_div.h"
#include "dist/communicator.h"
#include "models/counted_model.h"
#include "ops/cuda/decode_items.h"
#include "ops/decoder_step.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "runner/gpu_draft_inputs.h"
#include "runner/gpu_logprobs.h"
#include "runner/gpu_lora_slots.h"
#include "runner/gpu_masks.h"
#include "runner/gpu_stage.h"
#include "runner/gpu_taps.h"

namespace quire {
namespace {

// Chunks of contexts that one step reads with the decode kernel, at most, and as many for each
// query of a sequence; a step with more reads the last of its sequences as prompts are read. Four
// million tokens.
constexpr int64_t kMaxDecodeItems = 16384;

// What the pieces lose to alignment: each is rounded up to 256 bytes, and a layer has less than 16.
int64_t rounding(int64_t num_layers) {
  return 256 * 16 * (num_layers + 16);
}

ops::CudaKernels make_planned_kernels() {
  ops::CudaKernels kernels = {};
  // Partial sums of each head, and two floats for each eight of them.
  kernels.paged_attention_scratch_bytes = [](int64_t max_decode_rows, int64_t, int64_t,
                                             int num_heads, int, int head_dim) {
    constexpr int64_t kCounters = int64_t{1} << 22;
    const int64_t width = int64_t{num_heads} * head_dim;
    return kCounters + max_decode_rows * (width + width / 4) * int64_t{sizeof(float)};
  };
  // Less than a float for each sixteen tokens.
  kernels.sample_scratch_bytes = [](int64_t rows, int64_t vocab) {
    return rows * (vocab / 16 + 64) * int64_t{sizeof(float)};
  };
  return kernels;
}

}  // namespace

int64_t GpuSizes::total() const {
  return attention_scratch + sample_scratch + decoder_scratch + inputs + sampled_ids + prompt_ids +
         logprobs + masks + stage + alignment;
}

void check_gpu_takes(const ModelConfig& model, int64_t max_num_seqs) {
  if (model.head_dim % 8 != 0 || model.head_dim > ops::kMaxHeadDim) {
    throw Error(
        fmt::format("config.json: head_dim is {}; on a GPU a multiple of 8 up to {} is expected. "
                    "Use --device cpu.",
                    model.head_dim, ops::kMaxHeadDim));
  }
  if (model.vocab_size > ops::kMaxVocabSize) {
    throw Error(
        fmt::format("config.json: vocab_size is {}; on a GPU at most {} is expected. Use --device "
                    "cpu.",
                    model.vocab_size, ops::kMaxVocabSize));
  }
  if (max_num_seqs > ops::kMaxStepLogitsRows) {
    throw Error(fmt::format("--max-num-seqs is {}; on a GPU at most {} is expected.", max_num_seqs,
                            ops::kMaxStepLogitsRows));
  }
}

const ops::CudaKernels& planned_kernels() {
  static const ops::CudaKernels kernels = make_planned_kernels();
  return kernels;
}

int64_t planned_overhead_bytes(int num_ranks) {
  // Kernels, graphs and cuBLAS; messages between GPUs and what NCCL takes.
  constexpr int64_t kOneGpu = int64_t{512} << 20;
  constexpr int64_t kGroup = int64_t{768} << 20;
  return num_ranks > 1 ? kOneGpu + kGroup : kOneGpu;
}

GpuSizes gpu_sizes(const ops::CudaKernels& kernels, const RunnerOptions& options) {
  const ModelConfig& config = options.model.config;
  const KvCacheShape cache = CountedModel(options.model).model().kv_cache_shape();
  const int64_t max_model_len = options.model.max_model_len;
  const int num_heads = static_cast<int>(config.num_attention_heads / options.model.size);
  GpuSizes sizes;
  StepShape& step = sizes.largest_step;
  step.num_tokens = options.max_tokens;
  step.num_seqs = options.max_num_seqs;
  step.table_width = ceil_div(max_model_len, options.block_size);
  step.num_logits = options.most_logits_rows();
  step.num_decode_items =
      std::min(kMaxDecodeItems, options.max_num_seqs * ops::num_decode_items(max_model_len));
  step.max_decode_queries = 1 + options.max_draft_tokens;
  step.num_decode_rows =
      std::min(kMaxDecodeItems, step.num_logits * ops::num_decode_items(max_model_len));
  if (options.max_loras > 0) {
    step.num_lora_items = lora_item_room(step.num_tokens, options.max_loras);
    step.num_lora_logits_items = lora_item_room(step.num_logits, options.max_loras);
    step.orders_lora_rows = true;
  }
  step.adjusts_logits = true;
  step.num_biases = kMaxStepBiases;
  sizes.attention_scratch = kernels.paged_attention_scratch_bytes(
      step.num_decode_rows, step.num_seqs, step.max_decode_queries, num_heads, cache.num_kv_heads,
      cache.head_dim);
  sizes.sample_scratch = kernels.sample_scratch_bytes(step.num_logits, config.vocab_size);
  sizes.decoder_scratch = static_cast<int64_t>(ops::DecoderStep::bytes(cache.num_layers));
  sizes.inputs = static_cast<int64_t>(StepInputs::bytes(step));
  // Whole shares of the ranks.
  const int size = options.model.size;
  sizes.first_draft = draft_ids_stride(RowShare::rows_each(step.num_logits, size) * size);
  sizes.sampled_ids =
      (sizes.first_draft + num_draft_ids(options)) * static_cast<int64_t>(sizeof(int32_t));
  sizes.prompt_ids = static_cast<int64_t>(PromptIds::bytes(step.num_logits));
  sizes.logprobs = static_cast<int64_t>(GpuLogprobs::bytes(step.num_logits, kMaxLogprobs));
  sizes.masks = static_cast<int64_t>(GpuMasks::bytes(step.num_logits, config.vocab_size));
  sizes.stage = GpuStage::bytes(options, sizes.max_ids()) + GpuTaps::bytes(options);
  sizes.alignment = rounding(cache.num_layers);
  return sizes;
}

}  // namespace quire
