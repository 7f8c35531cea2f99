#pragma once
// A step that a rank has launched, and how to get its result.
//
// On the CPU a step is done when launch() returns; a GPU still works on it. Thread safety: one
// thread at a time, not necessarily the rank's worker.
#include <utility>

#include "request/scheduled_batch.h"

namespace quire {

class PendingStep {
 public:
  virtual ~PendingStep() = default;
  // Waits until the step is done and returns its output. Throws Error when the step failed. Called
  // once.
  virtual StepOutput wait() = 0;
  // wait() for callers that do not need the output. Returns the seconds that a GPU took.
  virtual double finish() = 0;
};

class FinishedStep final : public PendingStep {
 public:
  explicit FinishedStep(StepOutput output) : output_(std::move(output)) {}
  StepOutput wait() override { return std::move(output_); }
  double finish() override { return 0; }

 private:
  StepOutput output_;
};

}  // namespace quire
