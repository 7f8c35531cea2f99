// How a rank on a GPU has drafts made, in one stage or in several, and what the host knows of them.
#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "runner/gpu_draft_inputs.h"
#include "runner/gpu_launched.h"
#include "runner/gpu_runner.h"

namespace quire {

bool GpuRunner::makes_drafts(const ScheduledBatch& batch) const {
  return drafter_ && std::ranges::any_of(batch.sequences, [](const auto& chunk) {
           return chunk.kind == ChunkKind::kVerify;
         });
}

size_t GpuRunner::num_steps_not_needed_by(const ScheduledBatch& batch) const {
  std::unordered_set<SequenceId> drafted;
  for (const ScheduledSequence& chunk : batch.sequences) {
    if (drafter_ && num_drafts_to_make(chunk) > 0) drafted.insert(chunk.id);
  }
  const bool had_drafts =
      std::ranges::any_of(in_flight_, [](const auto& step) { return step->has_drafts; });
  if (drafted.empty() && !had_drafts) return in_flight_.size();
  std::unordered_set<SequenceId> ids;
  for (const ScheduledSequence& chunk : batch.sequences) ids.insert(chunk.id);
  const auto is_needed = [&](const std::shared_ptr<Launched>& step) {
    return std::ranges::any_of(step->sampled, [&](const Launched::Sampled& sampled) {
      return (sampled.is_verified() && ids.contains(sampled.id)) || drafted.contains(sampled.id);
    });
  };
  const auto newest = std::find_if(in_flight_.rbegin(), in_flight_.rend(), is_needed);
  return static_cast<size_t>(newest - in_flight_.rbegin());
}

void GpuRunner::place_drafts(std::span<const StepSequence> sequences) {
  if (drafter_) return drafter_->place_drafts(sequences);
  if (options_.draft) {
    // Stages in between need no drafts: no id is found at their places.
    if (is_last()) {
      received_drafts_.set(sequences, stage_->first_draft(), max_drafting(options_));
    }
    return;
  }
  for (const StepSequence& sequence : sequences) {
    check(std::ranges::count(sequence.chunk.draft_token_ids, kDraftOfRunner) == 0,
          "drafts have ids where no drafter makes them");
  }
}

void GpuRunner::make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                            Launched& step) {
  step.draft_events.reading = std::exchange(read_taps_.reading, {});
  if (step.has_drafts) step.began = gpu_->record(EventWait::kSpin);
  drafter_->make_drafts(batch, sequences, step.draft_ids, step.draft_events);
  if (stage_ && drafter_->num_ids() > 0) {
    stage_->send_drafts(*gpu_, static_cast<size_t>(drafter_->num_ids()));
  }
}

void GpuRunner::receive_drafts(Launched& step) {
  const auto count = static_cast<size_t>(received_drafts_.num_ids());
  if (count == 0) return;
  stage_->receive_drafts(*gpu_, count);
  gpu_->copy_to_host(step.draft_ids, stage_->recent_ids() + stage_->first_draft(),
                     count * sizeof(int32_t));
  step.draft_events.drafting.end = gpu_->record(EventWait::kSpin);
}

void GpuRunner::learn_drafts(std::span<const StepSequence> sequences, Launched& step) {
  if (step.draft_events.drafting.end == nullptr) return;
  step.draft_events.drafting.end->wait();
  for (size_t row = 0; row < step.sampled.size(); ++row) {
    Launched::Sampled& sampled = step.sampled[row];
    if (!sampled.draft) continue;
    sampled.draft = step.draft_of(row);
    sequences[sampled.sequence].state.output_token_ids[sampled.index] = *sampled.draft;
  }
}

void GpuRunner::hold_taps(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                          const Launched& step) {
  if (!taps_->has_room()) keep_oldest_taps();
  GpuTaps::Step held = {.number = batch.step, .num_tokens = step.shape.num_tokens};
  if (batch.drafter_reads_prompts) held.prompts = tapped_prompts(sequences);
  taps_->hold(*gpu_, std::move(held), on_device_.slot_mapping);
}

void GpuRunner::keep_oldest_taps() {
  const Tensor states = drafter_->states_of(taps_->held().front().num_tokens)->out;
  const GpuTaps::Step step = taps_->take(*gpu_, stream_, states);
  ForwardBatch rows;
  rows.num_tokens = step.num_tokens;
  rows.slot_mapping = step.slots;
  drafter_->keep(rows);
  drafter_->read_prompts(find_prompts(step.prompts, table_), read_taps_);
}

}  // namespace quire
