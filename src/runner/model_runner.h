#pragma once
// One rank on the CPU. A step is run when it is launched.
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
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"

namespace quire {

class ModelRunner final : public RankRunner {
 public:
  // Allocates the rank's part; weights are zero. `comm` and `stream` outlive the runner.
  ModelRunner(const RunnerOptions& options, Communicator& comm, Stream& stream);

  void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) override;
  // Runs the step.
  std::unique_ptr<PendingStep> launch(const ScheduledBatch& batch) override;

 private:
  StepOutput execute(const ScheduledBatch& batch);
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
