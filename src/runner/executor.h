#pragma once
// What runs an engine's steps: all ranks of a model, wherever they are.
//
// submit() returns at once, so the next step can be scheduled while one runs; wait() gives the
// steps' results in the order in which they were submitted. Thread safety: one thread at a time
// (the engine's).
#include <memory>

#include "request/scheduled_batch.h"

namespace quire {

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

  // Throws the Error of a rank that has failed, of steps or between them.
  virtual void check_health() = 0;
};

}  // namespace quire
