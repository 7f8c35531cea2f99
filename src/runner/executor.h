#pragma once
// What runs an engine's steps: all ranks of a model, wherever they are.
//
// submit() returns at once, so the next step can be scheduled while one runs; wait() gives the
// steps' results in the order in which they were submitted. Thread safety: one thread at a time
// (the engine's).
#include <cstdint>
#include <memory>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire {

// Of one stage of a pipeline, since the start.
struct StageLoad {
  int64_t num_steps = 0;
  double busy_s = 0;  // time of its first rank without that in which it waited for other stages
};

class Executor {
 public:
  Executor() = default;
  // Waits for the steps that were submitted.
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  virtual void submit(std::shared_ptr<const ScheduledBatch> batch) = 0;

  // The result of the oldest step submitted and not waited for. Throws Error if a rank or its GPU
  // failed; then the executor cannot be used any more.
  virtual StepOutput wait() = 0;

  // Of each stage of a pipeline; empty where there is one, or they are in several processes. From
  // any thread.
  virtual std::vector<StageLoad> stages() const { return {}; }
  // Throws the Error of a rank that has failed, of steps or between them.
  virtual void check_health() = 0;
};

}  // namespace quire
