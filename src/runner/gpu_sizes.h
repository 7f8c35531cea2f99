#pragma once
// What a rank takes of a GPU's memory beside weights, activations and KV cache.
//
// Thread safety: free functions of their arguments.
#include <cstdint>

#include "ops/cuda_kernels.h"
#include "runner/rank_runner.h"
#include "runner/step_inputs.h"

namespace quire {

struct GpuSizes {
  StepShape largest_step;
  int64_t attention_scratch = 0;  // bytes, as the rest
  int64_t sample_scratch = 0;
  int64_t decoder_scratch = 0;
  int64_t inputs = 0;
  int64_t sampled_ids = 0;
  int64_t logprobs = 0;

  // With what the pieces lose to alignment.
  int64_t total() const;
};

GpuSizes gpu_sizes(const ops::CudaKernels& kernels, const RunnerOptions& options);

}  // namespace quire
