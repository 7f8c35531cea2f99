#pragma once
// A step that GpuRunner has launched: what it brings, where the GPU writes that, and the way to it.
//
// Thread safety: written by the rank's worker until launch() returns; then the worker, which learns
// the tokens for the steps to come, and the one that waits for the result read it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "core/device_library.h"
#include "ops/no_token.h"
#include "request/scheduled_batch.h"
#include "runner/gpu_logprobs.h"
#include "runner/gpu_masks.h"
#include "runner/gpu_runner.h"
#include "runner/pending_step.h"
#include "runner/step_inputs.h"

namespace quire {

struct GpuRunner::Launched {
  struct Sampled {
    SequenceId id = 0;
    size_t index = 0;     // in its sequence's output
    size_t sequence = 0;  // in the batch
    bool on_host = false;
    bool is_masked = false;  // the GPU samples among the tokens that a constraint allows
    // Log-probabilities to be found on the GPU; nothing where they are not asked for, or known.
    std::optional<int> num_logprobs;
  };
  StepOutput output;             // without what the GPU finds out
  std::vector<Sampled> sampled;  // in the order of the rows of logits
  bool wants_host = false;       // some of them are sampled by the host
  bool has_masks = false;        // some of them are masked
  bool wants_logits = false;     // rank 0 does more with some of them than to sample
  StepShape shape;
  LogprobsLayout logprobs_layout;
  StepMasks masks;  // of rank 0
  // What the GPU writes to lives as long as somebody may read it, also when the runner has failed.
  std::shared_ptr<PinnedBuffer> results;
  int32_t* ids = nullptr;         // pinned: the result
  std::byte* logprobs = nullptr;  // pinned: the result, where some were asked for
  std::unique_ptr<DeviceEvent> began;
  std::unique_ptr<DeviceEvent> done;

  // Returns when the GPU is done and the masks were told, which the caller does if it has claimed
  // that.
  void finish(bool tells_masks, ThreadPool* threads) {
    if (!tells_masks) {
      done->wait();
      if (!masks.claim()) return masks.wait_until_told();
    }
    try {
      done->wait();
      masks.tell(ids, threads);
    } catch (...) {
      masks.give_up();
      throw;
    }
  }
};

class GpuRunner::Pending final : public PendingStep {
 public:
  explicit Pending(std::shared_ptr<Launched> step) : step_(std::move(step)) {}

  void finish() override { step_->done->wait(); }

  // The worker tells the masks sooner, with its threads, where it waits for the step as well.
  StepOutput wait() override {
    step_->finish(false, nullptr);
    StepOutput output = std::move(step_->output);
    output.gpu_s = step_->done->seconds_since(*step_->began);
    for (size_t row = 0; row < step_->sampled.size(); ++row) {
      const Launched::Sampled& sampled = step_->sampled[row];
      SequenceOutput& sequence = output.sequences[sampled.sequence];
      sequence.token_ids = {std::max(step_->ids[row], 0)};
      sequence.invalid_logits = step_->ids[row] == ops::kNoToken;
      if (!sampled.num_logprobs || sequence.invalid_logits) continue;
      sequence.logprobs.push_back(GpuLogprobs::read(step_->logprobs, step_->logprobs_layout,
                                                    static_cast<int64_t>(row), step_->ids[row],
                                                    *sampled.num_logprobs));
    }
    return output;
  }

 private:
  std::shared_ptr<Launched> step_;
};

}  // namespace quire
