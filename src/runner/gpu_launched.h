#pragma once
// A step that GpuRunner has launched: what it brings, where the GPU writes that, and the way to it.
//
// Thread safety: written by the rank's worker until launch() returns; then the worker, which learns
// the tokens for the steps to come, and the one that waits for the result read it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "core/device_library.h"
#include "ops/no_token.h"
#include "request/scheduled_batch.h"
#include "runner/gpu_draft_events.h"
#include "runner/gpu_logprobs.h"
#include "runner/gpu_masks.h"
#include "runner/gpu_runner.h"
#include "runner/pending_step.h"
#include "runner/step_inputs.h"
#include "runner/synthetic_drafts.h"

namespace quire {

struct GpuRunner::Launched {
  struct Sampled {
    SequenceId id = 0;
    uint64_t serial = 0;      // of the sequence's state
    size_t index = 0;         // in its sequence's output
    size_t sequence = 0;      // in the batch
    bool has_drafts = false;  // the newest tokens before it are drafts
    // The draft in its place: the chunk's next row counts only where it is what was sampled. Its
    // id, or unknown_token() of its place, as `draft_ids` has it. None for the last of a chunk's
    // rows.
    std::optional<int32_t> draft;
    // With RunnerOptions::synthetic_acceptance: whether the draft stays.
    std::optional<bool> keeps_draft{};
    bool on_host = false;
    bool is_masked = false;  // the GPU samples among the tokens that a constraint allows
    // Log-probabilities to be found on the GPU; nothing where they are not asked for, or known.
    std::optional<int> num_logprobs;

    // Whether the row is one of a chunk with drafts.
    bool is_verified() const { return has_drafts || draft.has_value(); }
  };
  StepOutput output;             // without what the GPU finds out
  std::vector<Sampled> sampled;  // in the order of the rows of logits
  bool has_drafts = false;       // some of them are behind drafts
  bool wants_host = false;       // some of them are sampled by the host
  bool has_masks = false;        // some of them are masked
  bool wants_logits = false;     // rank 0 does more with some of them than to sample
  StepShape shape;
  LogprobsLayout logprobs_layout;
  StepMasks masks;                                // of rank 0
  std::map<size_t, TokenLogprobs> host_logprobs;  // by row, of what the host sampled
  // What the GPU writes to lives as long as somebody may read it, also when the runner has failed.
  std::shared_ptr<PinnedBuffer> results;
  int32_t* ids = nullptr;         // pinned: the result
  int32_t* draft_ids = nullptr;   // pinned: those that a GPU made
  int32_t first_draft_place = 0;  // of the first of these
  std::byte* logprobs = nullptr;  // pinned: the result, where some were asked for
  std::unique_ptr<DeviceEvent> began;
  std::unique_ptr<DeviceEvent> done;
  std::unique_ptr<DeviceEvent> computed;  // before it hands over to another stage; else null
  // On the first of several stages, which does not sample: `ids` are there. Of the worker only,
  // which sets it when it queues what brings them.
  std::unique_ptr<DeviceEvent> learned;
  GpuDraftEvents draft_events;

  // Adds row `row` of the logits of a chunk, which is that of `sequence` in the batch.
  // synthetic_acceptance: RunnerOptions'.
  void add_row(const StepSequence& chunk, size_t sequence, int64_t row, SamplingPlace place,
               std::optional<double> synthetic_acceptance) {
    const SequenceState& state = chunk.state;
    const bool on_host = place == SamplingPlace::kHost;
    const bool is_masked = !on_host && state.request->is_constrained;
    const bool is_last = row + 1 == chunk.chunk.num_logits_rows();
    const size_t index = chunk.num_tokens_at(row) - state.request->prompt_token_ids.size();
    wants_host |= on_host;
    has_masks |= is_masked;
    has_drafts |= row > 0;
    wants_logits |= on_host || is_masked || state.params().logprobs.has_value();
    sampled.push_back(
        {.id = chunk.chunk.id,
         .serial = state.serial,
         .index = index,
         .sequence = sequence,
         .has_drafts = row > 0,
         .draft = is_last ? std::nullopt : std::optional(state.output_token_ids[index]),
         .on_host = on_host,
         .is_masked = is_masked,
         .num_logprobs = on_host ? std::nullopt : state.params().logprobs});
    if (!synthetic_acceptance || !sampled.back().draft) return;
    sampled.back().keeps_draft =
        keeps_synthetically(*synthetic_acceptance, state, chunk.num_tokens_at(row));
  }

  // The draft in a row's place, once the GPU is done, or has made the drafts. What could not be
  // drafted is a 0, as the GPU verifies it.
  std::optional<int32_t> draft_of(size_t row) const {
    const std::optional<int32_t>& draft = sampled[row].draft;
    const int32_t place = draft ? row_of_unknown(*draft) : -1;
    return place >= 0 ? std::max(draft_ids[place - first_draft_place], 0) : draft;
  }

  // The token of a row, once the GPU is done. What could not be chosen is a 0 to what follows.
  int32_t token_of(size_t row) const {
    const int32_t token_id = std::max(ids[row], 0);
    const Sampled& of_row = sampled[row];
    if (!of_row.keeps_draft) return token_id;
    return *of_row.keeps_draft ? *draft_of(row) : other_than(*draft_of(row), token_id);
  }

  // Calls visit(row) for the rows whose tokens stay: of each chunk the first, and each behind a
  // draft that was sampled.
  template <typename Visit>
  void for_each_kept(const Visit& visit) const {
    bool is_kept = true;
    for (size_t row = 0; row < sampled.size(); ++row) {
      if (!sampled[row].has_drafts) is_kept = true;
      if (!is_kept) continue;
      visit(row);
      is_kept = ids[row] != ops::kNoToken && token_of(row) == draft_of(row);
    }
  }

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

  StepTimes finish() override {
    step_->done->wait();
    const auto& end = step_->computed ? step_->computed : step_->done;
    return {.gpu_s = end->seconds_since(*step_->began),
            .drafts = step_->draft_events.times(),
            .has_first_drafts_of_kind = step_->draft_events.is_first_of_kind};
  }

  // The worker tells the masks sooner, with its threads, where it waits for the step as well.
  StepOutput wait() override {
    step_->finish(false, nullptr);
    StepOutput output = std::move(step_->output);
    output.gpu_s = step_->done->seconds_since(*step_->began);
    const DraftTimes times = step_->draft_events.times();
    output.draft_s = times.drafting_s;
    output.draft_reading_s = times.reading_s;
    output.is_first_of_kind |= step_->draft_events.is_first_of_kind;
    step_->for_each_kept([&](size_t row) { add_token(row, output); });
    return output;
  }

 private:
  void add_token(size_t row, StepOutput& output) const {
    const Launched::Sampled& sampled = step_->sampled[row];
    SequenceOutput& sequence = output.sequences[sampled.sequence];
    sequence.token_ids.push_back(step_->token_of(row));
    sequence.invalid_logits = step_->ids[row] == ops::kNoToken;
    if (const auto found = step_->host_logprobs.find(row); found != step_->host_logprobs.end()) {
      sequence.logprobs.push_back(found->second);
    }
    if (!sampled.num_logprobs || sequence.invalid_logits) return;
    sequence.logprobs.push_back(GpuLogprobs::read(step_->logprobs, step_->logprobs_layout,
                                                  static_cast<int64_t>(row), step_->ids[row],
                                                  *sampled.num_logprobs));
  }

  std::shared_ptr<Launched> step_;
};

}  // namespace quire
