#pragma once
// A step that a rank has launched, and how to get its result.
//
// On the CPU a step is done when launch() returns; a GPU still works on it. Thread safety: one
// thread at a time, not necessarily the rank's worker.
#include <utility>

#include "request/scheduled_batch.h"
#include "runner/draft_times.h"

namespace quire {

// What a step took on a GPU, in seconds.
struct StepTimes {
  double gpu_s = 0;
  DraftTimes drafts;  // of the rank's drafter, as StepOutput has them
  bool has_first_drafts_of_kind = false;
};

class PendingStep {
 public:
  virtual ~PendingStep() = default;
  // Waits until the step is done and returns its output. Throws Error when the step failed. Called
  // once.
  virtual StepOutput wait() = 0;
  // wait() for callers that do not need the output.
  virtual StepTimes finish() = 0;
};

class FinishedStep final : public PendingStep {
 public:
  explicit FinishedStep(StepOutput output) : output_(std::move(output)) {}
  StepOutput wait() override { return std::move(output_); }
  StepTimes finish() override { return {}; }

 private:
  StepOutput output_;
};

}  // namespace quire
