#pragma once
// What a rank takes of a GPU's memory beside weights, activations and KV cache.
//
// Thread safety: free functions of their arguments.
#include <cstdint>

#include "ops/cuda/kernels.h"
#include "runner/rank_runner.h"
#include "runner/step_inputs.h"

namespace quire {

struct GpuSizes {
  StepShape largest_step;
  int64_t attention_scratch = 0;  // bytes, as the rest
  int64_t sample_scratch = 0;
  int64_t decoder_scratch = 0;
  int64_t inputs = 0;
  int64_t sampled_ids = 0;  // those of drafts included
  int64_t first_draft = 0;  // of these ids, not bytes: where those of drafts begin
  int64_t prompt_ids = 0;   // of rows and tokens, for log-probabilities of prompts
  int64_t logprobs = 0;
  int64_t masks = 0;      // of constrained rows
  int64_t stage = 0;      // what stages hand to each other
  int64_t alignment = 0;  // what all pieces of a rank's memory may lose to it

  int64_t total() const;
  // Ids that a step has room for.
  int64_t max_ids() const { return sampled_ids / static_cast<int64_t>(sizeof(int32_t)); }
};

// Throws Error where the kernels do not take a model of these sizes, or so many sequences a step.
void check_gpu_takes(const ModelConfig& model, int64_t max_num_seqs);

GpuSizes gpu_sizes(const ops::CudaKernels& kernels, const RunnerOptions& options);

// For plans of GPUs that are not there: kernels that only say, about, how much scratch they take;
// and DeviceLibrary::overhead_bytes().
const ops::CudaKernels& planned_kernels();
int64_t planned_overhead_bytes(int num_ranks);

}  // namespace quire
