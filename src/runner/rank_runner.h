#pragma once
// One rank: its shard of the model, its KV cache, its copy of the sequences.
//
// All ranks of a group run the same batches in the same order. Thread safety: one thread, the
// rank's worker.
#include <cstdint>
#include <memory>
#include <vector>

#include "loader/checkpoint.h"
#include "models/model.h"
#include "ops/cuda/linear/algorithms.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/pending_step.h"

namespace quire {

// Sizes and settings that all ranks share.
struct RunnerOptions {
  ModelOptions model;  // its rank is set for each rank
  DType kv_cache_dtype = DType::kFloat32;
  int block_size = 16;
  int64_t num_blocks = 0;
  int64_t max_tokens = 0;       // in one step
  int64_t max_num_seqs = 0;     // in one step
  int64_t max_logits_rows = 0;  // computed at a time; a step with more takes several rounds
  std::vector<int32_t> eos_token_ids;
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t seed = 0;           // of dummy weights
  bool enforce_eager = false;  // GPU only: no CUDA graphs
  // GPU only: of its matrix products; null: those of the source's table.
  std::shared_ptr<const ops::LinearAlgorithms> linear_algorithms;
};

class RankRunner {
 public:
  virtual ~RankRunner() = default;

  // Fills the weights, from `checkpoint` unless load_format is dummy.
  virtual void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) = 0;

  // Starts one step; steps are done in the order of the calls. Rank 0's result is
  // what the step came to; of the others only whether they failed is of interest.
  virtual std::unique_ptr<PendingStep> launch(const ScheduledBatch& batch) = 0;
};

}  // namespace quire
