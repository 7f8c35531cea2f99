#pragma once
// The drafts of a step on the CPU on their way from the first stage, which makes them, to the last,
// which verifies them; and on GPUs, where drafts go from GPU to GPU, what they took.
//
// Stages in between need neither: a draft is an input of the first stage's embedding and is
// compared with what the last stage samples. Thread safety: free functions of their arguments.
#include <cstdint>
#include <span>
#include <vector>

#include "dist/communicator.h"
#include "runner/draft_times.h"
#include "runner/pending_step.h"
#include "runner/sequence_table.h"

namespace quire {

// The step's drafts of a drafter, in the order of its chunks, then the times as bits.
std::vector<int32_t> pack_drafts(std::span<const StepSequence> sequences, const DraftTimes& times);
// The same in length, to be overwritten by what was packed for these chunks.
std::vector<int32_t> room_for_drafts(std::span<const StepSequence> sequences);
// Puts the packed drafts in their places behind the sequences' tokens. Returns the times.
DraftTimes unpack_drafts(std::span<const int32_t> packed, std::span<const StepSequence> sequences);

// On GPUs: what a step took on the first stage, for the last. `pipeline`: the ranks of all stages.
void send_step_times(Communicator& pipeline, const StepTimes& times);
StepTimes receive_step_times(Communicator& pipeline);

}  // namespace quire
