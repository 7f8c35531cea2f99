#include "runner/gpu_draft_model.h"

#include <optional>

namespace quire {

GpuDraftModel::GpuDraftModel(const RunnerOptions& options, const GpuDraftHome& home,
                             const ModelOptions& part)
    : GpuDrafter(options, home, part, 0, 0) {}

std::vector<GpuDrafter::Piece> GpuDraftModel::take_unread(const ScheduledBatch& batch,
                                                          std::span<const StepSequence> sequences) {
  std::vector<Piece> pieces;
  for (const StepSequence& sequence : sequences) {
    if (sequence.chunk.kind != ChunkKind::kPrefill || !batch.drafter_reads_prompts) continue;
    // Where the text before was not read, it would take longer than the step may.
    const int64_t missing = slots().first_missing(sequence.state.block_table, sequence.begin);
    if (missing == sequence.begin) take(sequence.state, sequence.begin, sequence.end(), pieces);
  }
  for (const StepSequence* sequence : drafting()) {
    // The last token but one is read with the newest where it is the only one: where all drafts
    // were kept it was the last of them, behind which none was made.
    const int64_t newest = sequence->begin;
    const int64_t begin = slots().first_missing(sequence->state.block_table, newest);
    if (begin < newest - 1) take(sequence->state, begin, newest, pieces);
  }
  return pieces;
}

Tensor GpuDraftModel::run_model(ForwardContext& context, size_t, const int32_t*) {
  return model().forward(context, std::nullopt).hidden;
}

Tensor GpuDraftModel::compute_logits(ForwardContext& context, const Tensor& hidden) {
  return model().compute_logits(context, hidden);
}

}  // namespace quire
