#pragma once
// A rank's part of an EAGLE or EAGLE-3 head that makes drafts for the rank's model on its GPU
// (runner/gpu_drafter.h), as runner/eagle_drafter.h does on the CPU.
//
// What the head knows of the tokens of a step is projected and kept with the model's pass, so it is
// part of the model's graphs. A first pass takes it from there; those that follow take the head's
// own output, which stays in place. Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "models/eagle_head.h"
#include "runner/gpu_drafter.h"

namespace quire {

class GpuEagleDrafter final : public GpuDrafter {
 public:
  GpuEagleDrafter(const RunnerOptions& options, const GpuDraftHome& home, const ModelOptions& part,
                  const Model& target);

  // Bytes of a step beside the head's activations, and of each token of the cache beside keys and
  // values.
  static int64_t extra_step_bytes(const RunnerOptions& options);
  static int64_t known_bytes_per_token(const ModelOptions& head);

  const AuxStates* states_of(int64_t num_tokens) override;
  void keep(const ForwardBatch& forward) override;
  void read_prompts(std::span<const DraftPiece> prompts, GpuDraftEvents& events) override;

 private:
  std::vector<Piece> take_unread(const ScheduledBatch& batch,
                                 std::span<const StepSequence> sequences) override;
  Tensor run_model(ForwardContext& context, size_t pass, const int32_t* known_rows) override;
  Tensor compute_logits(ForwardContext& context, const Tensor& hidden) override;

  EagleHead& head() { return static_cast<EagleHead&>(model()); }

  Buffer states_memory_;  // of states_
  Buffer row_ids_;        // int32[max_tokens]: 0, 1, ...
  AuxStates states_;
  Buffer known_memory_;
  Tensor known_;  // [slots, hidden_size]: by slot of the cache
  Buffer drafted_memory_;
  Tensor drafted_;    // [max_drafting, hidden_size]: what is known behind the last pass, by place
  Buffer draft_ids_;  // int32[vocab_size]: by token, its draft id or -1; empty: the same ids
};

}  // namespace quire
