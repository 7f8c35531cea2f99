#pragma once
// Runs an engine's steps on all ranks of a model, wherever they are.
//
// submit() returns at once, so the next step can be scheduled while one runs; wait() returns
// results in the order in which steps were submitted. Thread safety: one thread at a time (the
// engine's).
#include <cstdint>
#include <memory>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

// One stage of a pipeline, since the start.
struct StageLoad {
  int64_t num_steps = 0;
  double busy_s = 0;  // time of its first rank without that in which it waited for other stages
};

class Executor {
 public:
  Executor() = default;
  // Waits for the submitted steps.
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  virtual void submit(std::shared_ptr<const ScheduledBatch> batch) = 0;

  // The result of the oldest submitted step that was not waited for yet. Throws Error if a rank or
  // its GPU failed; then the executor cannot be used any more.
  virtual StepOutput wait() = 0;

  // The load of each stage of a pipeline. Empty for a single stage, and on nodes other than 0. What
  // another process has is up to a second old. From any thread.
  virtual std::vector<StageLoad> stages() const { return {}; }
  // Throws the Error of a rank that has failed, during a step or between steps.
  virtual void check_health() = 0;
};

}  // namespace quire
