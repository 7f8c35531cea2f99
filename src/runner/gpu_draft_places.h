#pragma once
// Where the drafts lie that a drafter on a GPU makes for a step, among other ids on the GPU: those
// of one pass next to each other, at a distance that is the same for all passes.
//
// Follows from the step alone, so that stages which did not make the drafts know it, too. Thread
// safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <vector>

#include "runner/sequence_table.h"

namespace quire {

class GpuDraftPlaces {
 public:
  // Puts unknown_token(id) in the places of drafts that a drafter makes, where `id` counts from
  // `first_id`. `sequences` hold until the next call. At most `max_drafting` of them have drafts.
  void set(std::span<const StepSequence> sequences, int64_t first_id, int64_t max_drafting);

  // Sequences that have drafts, those with most first.
  std::span<const StepSequence* const> drafting() const { return drafting_; }
  // The distance of a pass's ids from those of the pass before.
  int64_t stride() const { return stride_; }
  // From the first id on, those of all passes; 0 where there are no drafts.
  int64_t num_ids() const;

 private:
  std::vector<const StepSequence*> drafting_;
  int64_t stride_ = 0;
};

// The drafts of a chunk that a drafter makes.
int64_t num_drafts_to_make(const ScheduledSequence& chunk);

}  // namespace quire
