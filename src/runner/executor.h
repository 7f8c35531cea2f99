#pragma once
// The ranks of this process, one worker thread each, fed with batches from a queue. On GPUs a
// second thread of each rank but the first waits for its steps, to see one that fails.
//
// submit() returns at once, so the next step can be scheduled while one runs; wait() gives the
// steps' results in the order in which they were submitted. Thread safety: one thread at a time
// (the engine's).
#include <memory>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "loader/checkpoint.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/rank_runner.h"

namespace quire {

struct ExecutorOptions {
  RunnerOptions runner;
  int tensor_parallel_size = 1;
  int threads_per_rank = 1;
  Isa isa = Isa::kScalar;  // one that the CPU supports
  // With a library, rank i runs on GPU i and reserves so much of its memory.
  std::shared_ptr<DeviceLibrary> gpu_library;
  size_t gpu_rank_bytes = 0;
  ProgressCallback on_progress;
};

class Executor {
 public:
  // Starts the ranks and loads the weights (from `checkpoint`, null for dummy weights). Throws the
  // first error of any rank.
  Executor(const ExecutorOptions& options, const Checkpoint* checkpoint);
  // Waits for the steps that were submitted.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void submit(std::shared_ptr<const ScheduledBatch> batch);

  // The result of the oldest step submitted and not waited for. Throws Error if a rank or its GPU
  // failed; the executor is of no use then.
  StepOutput wait();

 private:
  struct Group;
  std::unique_ptr<Group> group_;
};

}  // namespace quire
