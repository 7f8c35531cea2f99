#pragma once
// A step that a rank was given: its result, once it is there.
//
// On the CPU a step is done when it was run; a GPU still works on it. Thread safety: one thread at
// a time, which need not be the rank's worker.
#include <utility>

#include "request/scheduled_batch.h"

namespace quire {

class PendingStep {
 public:
  virtual ~PendingStep() = default;
  // Throws Error when the step failed. Called once.
  virtual StepOutput wait() = 0;
  // The same for whom its output is nothing to.
  virtual void finish() = 0;
};

class FinishedStep final : public PendingStep {
 public:
  explicit FinishedStep(StepOutput output) : output_(std::move(output)) {}
  StepOutput wait() override { return std::move(output_); }
  void finish() override {}

 private:
  StepOutput output_;
};

}  // namespace quire
