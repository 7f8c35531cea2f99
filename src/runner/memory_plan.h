#pragma once
// Where an engine's memory goes. The model is made and run on memory that is only counted
// (models/counted_model.h): nothing is loaded or allocated.
//
// A runner takes no more of a device's memory than is planned here. On a GPU a runner also takes
// some host memory for inputs and results; it is small and not planned.
// Thread safety: free functions of their arguments.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/model.h"
#include "quire/plan.h"
#include "runner/model_runner.h"

namespace quire {

// What a plan is made from. Settings are checked already.
struct PlanRequest {
  ModelOptions model;  // the whole; its rank is ignored, as every rank is planned for
  int num_stages = 1;  // that the layers are cut into, each with model.size ranks
  DType kv_cache_dtype = DType::kFloat32;
  int block_size = 16;
  int64_t max_num_batched_tokens = 0;
  int64_t max_num_seqs = 0;
  // On GPUs: drafts of a sequence in a step, and of all in a step. The CPU computes logits in
  // rounds.
  int64_t max_draft_tokens = 0;
  int64_t max_drafts = 0;
  std::optional<int64_t> num_blocks_override;
  std::optional<int64_t> kv_cache_memory_bytes;
  int64_t available_bytes = 0;  // that may be taken, over all ranks
  // Of a GPU, whose ranks' model.device is one; null on the CPU.
  const ops::CudaKernels* kernels = nullptr;
  double gpu_memory_utilization = 0;  // that available_bytes were found with; for messages
  int64_t overhead_bytes = 0;         // of each rank (DeviceLibrary::overhead_bytes)
  int threads_per_rank = 1;
  // Of adapters: RunnerOptions'.
  int max_loras = 0;
  int64_t max_lora_rank = 0;
  int64_t lora_copy_bytes = 0;
  // RunnerOptions'. Its model's max_model_len and size are those of `model`.
  std::optional<DraftModelOptions> draft;

  bool on_cpu() const { return model.device.is_cpu(); }
  int num_ranks() const { return num_stages * model.size; }
};

// Fills all of MemoryPlan but `model`. Throws Error if one sequence of max_model_len doesn't fit,
// naming the settings that would make it fit.
MemoryPlan make_memory_plan(const PlanRequest& request);

// On GPUs: what a rank of each stage reserves (DeviceLibrary::reserve), by that plan.
std::vector<size_t> gpu_rank_bytes(const PlanRequest& request, const MemoryPlan& plan);

// The most tokens that one step can hold: the budget, or all sequences at full length where that is
// less.
int64_t max_step_tokens(const PlanRequest& request);
// Rows of logits computed at a time: few enough to keep the logits of a large vocabulary small,
// enough to read the output layer's weights seldom.
int64_t max_logits_rows(const PlanRequest& request);
// The sizes above as a runner takes them; what a plan does not know is left out.
RunnerOptions runner_options(const PlanRequest& request, int64_t num_blocks);

}  // namespace quire
