#pragma once
// A rank's part of a smaller model that makes drafts on its GPU (runner/gpu_drafter.h), as
// runner/draft_model.h does on the CPU.
//
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <vector>

#include "runner/gpu_drafter.h"

namespace quire {

class GpuDraftModel final : public GpuDrafter {
 public:
  GpuDraftModel(const RunnerOptions& options, const GpuDraftHome& home, const ModelOptions& part);

 private:
  std::vector<Piece> take_unread(const ScheduledBatch& batch,
                                 std::span<const StepSequence> sequences) override;
  Tensor run_model(ForwardContext& context, size_t pass, const int32_t* known_rows) override;
  Tensor compute_logits(ForwardContext& context, const Tensor& hidden) override;
};

}  // namespace quire
