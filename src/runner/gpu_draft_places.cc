#include "runner/gpu_draft_places.h"

#include <algorithm>

#include "base/check.h"
#include "runner/gpu_batch.h"
#include "runner/gpu_draft_inputs.h"

namespace quire {

int64_t num_drafts_to_make(const ScheduledSequence& chunk) {
  const std::vector<int32_t>& drafts = chunk.draft_token_ids;
  return drafts.empty() || drafts.front() != kDraftOfRunner ? 0 : std::ssize(drafts);
}

void GpuDraftPlaces::set(std::span<const StepSequence> sequences, int64_t first_id,
                         int64_t max_drafting) {
  drafting_.clear();
  for (const StepSequence& sequence : sequences) {
    if (num_drafts_to_make(sequence.chunk) > 0) drafting_.push_back(&sequence);
  }
  check(std::ssize(drafting_) <= max_drafting, "the plan knows how many sequences draft");
  std::ranges::stable_sort(drafting_, [](const StepSequence* a, const StepSequence* b) {
    return num_drafts_to_make(a->chunk) > num_drafts_to_make(b->chunk);
  });
  if (drafting_.empty()) return;
  stride_ = draft_ids_stride(std::min(padded_rows(std::ssize(drafting_)), max_drafting));
  for (size_t place = 0; place < drafting_.size(); ++place) {
    const StepSequence& sequence = *drafting_[place];
    SequenceState& state = sequence.state;
    for (int64_t draft = 0; draft < num_drafts_to_make(sequence.chunk); ++draft) {
      const int64_t id = first_id + draft * stride_ + static_cast<int64_t>(place);
      const int64_t index = sequence.begin + 1 + draft - state.num_prompt_tokens();
      state.output_token_ids[static_cast<size_t>(index)] = unknown_token(static_cast<int32_t>(id));
    }
  }
}

int64_t GpuDraftPlaces::num_ids() const {
  return drafting_.empty() ? 0 : stride_ * num_drafts_to_make(drafting_.front()->chunk);
}

}  // namespace quire
