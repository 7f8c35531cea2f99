#pragma once
// One rank: its shard of the model, its KV cache, its copy of the sequences. Runs one step at a
// time.
//
// All ranks of a group run the same batches in the same order. Rank 0 samples; the others learn the
// tokens from it.
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "loader/checkpoint.h"
#include "models/model.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/batch_builder.h"
#include "runner/kv_cache.h"
#include "runner/sequence_table.h"

namespace quire {

// Sizes and settings that all ranks share.
struct RunnerOptions {
  ModelOptions model;  // its rank is set for each rank
  DType kv_cache_dtype = DType::kFloat32;
  int block_size = 16;
  int64_t num_blocks = 0;
  int64_t max_tokens = 0;       // in one step
  int64_t max_logits_rows = 0;  // computed at a time; a step with more takes several rounds
  std::vector<int32_t> eos_token_ids;
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t seed = 0;  // of dummy weights
};

class ModelRunner {
 public:
  // Allocates the rank's part; weights are zero. `comm` and `stream` outlive the runner.
  ModelRunner(const RunnerOptions& options, Communicator& comm, Stream& stream);

  // Fills the weights, from `checkpoint` unless load_format is dummy.
  void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress);

  // Runs one step. Only rank 0's result holds anything.
  StepOutput execute(const ScheduledBatch& batch);

 private:
  void sample_tokens(const ForwardBatch& forward, const Tensor& hidden, const ScheduledBatch& batch,
                     StepOutput& output);
  void compute_prompt_logprobs(const ForwardBatch& forward, const Tensor& hidden,
                               const ScheduledBatch& batch, StepOutput& output);
  // Logits of some rows of the hidden state, at most max_logits_rows; in the arena.
  Tensor logits_of(const ForwardBatch& forward, const Tensor& hidden, const Tensor& rows);

  RunnerOptions options_;
  Communicator& comm_;
  Stream& stream_;
  std::unique_ptr<Model> model_;
  KvCache kv_cache_;
  Arena arena_;
  SequenceTable table_;
  BatchBuilder builder_;
};

}  // namespace quire
