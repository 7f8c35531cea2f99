// How an engine uses drafts: it asks for them, gives them to the scheduler, and learns from their
// results.
#include <algorithm>
#include <new>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/memory_reserve.h"
#include "engine/engine_core.h"

namespace quire {
namespace {

// The fewest drafts of forced text that are worth a step with drafts behind one in flight: the step
// that follows drafts waits for them to end.
constexpr size_t kLeastDraftsAhead = 2;
// The most sequences of a step beside which such drafts are made. The next step waits for them; up
// to here they gain nonetheless (docs/structured-output.md), and beyond it was not measured.
constexpr int64_t kMostSequencesAhead = 64;

// Counts a draft of `num_drafts` tokens; the first `num_kept` were kept.
void count_draft(SpeculativeStats& stats, size_t num_drafts, size_t num_kept) {
  if (num_drafts == 0) return;
  ++stats.num_drafts;
  stats.num_draft_tokens += static_cast<int64_t>(num_drafts);
  stats.num_accepted_tokens += static_cast<int64_t>(num_kept);
  for (size_t i = 0; i < num_kept; ++i) ++stats.num_accepted_tokens_per_pos.at(i);
}

}  // namespace

bool EngineCore::awaits_drafts() const {
  const bool drafts_next = (speculator_ && speculator_->drafts_next()) ||
                           (forced_drafts_ && forced_drafts_->drafts_next());
  return drafts_next && in_flight_.size() == num_stages();
}

template <typename Work>
void EngineCore::speculate(const Work& work) {
  if (!speculator_) return;
  try {
    const MemoryReserve::User none(nullptr);
    work();
  } catch (const std::bad_alloc&) {
    speculator_.emplace(*setup_.config.speculative_config, setup_.config.pipeline_parallel_size);
  }
}

void EngineCore::propose() {
  const std::unordered_set<SequenceId> forced = propose_forced();
  // The speculator's follow the newest token, so nothing of their sequence may be in flight.
  if (in_flight_.size() >= num_stages()) return;
  std::vector<std::pair<SequenceId, std::vector<int32_t>>> drafts;
  speculate([&] {
    for (const SequenceId id : speculator_->take_ready()) {
      if (!forced.contains(id)) drafts.emplace_back(id, speculator_->propose(id));
    }
  });
  for (auto& [id, draft] : drafts) {
    if (scheduler_.num_awaited_tokens(id) > 0) continue;
    const SequenceOwner& owner = owners_.at(id);
    const Request& request = owner.request->request();
    if (request.is_constrained && !setup_.executor.runner.draft) {
      answer_masks_->cut_draft(request, static_cast<uint32_t>(owner.index), draft);
    }
    if (forced_drafts_) forced_drafts_->take_proposed(id);
    scheduler_.propose(id, std::move(draft));
  }
}

std::unordered_set<SequenceId> EngineCore::propose_forced() {
  std::unordered_set<SequenceId> proposed;
  for (auto& [id, draft] : forced_texts()) {
    scheduler_.propose(id, std::move(draft));
    forced_drafts_->propose(id);
    proposed.insert(id);
  }
  return proposed;
}

std::vector<std::pair<SequenceId, std::vector<int32_t>>> EngineCore::forced_texts() {
  std::vector<std::pair<SequenceId, std::vector<int32_t>>> texts;
  if (!forced_drafts_) return texts;
  const bool ahead = setup_.forces_ahead;
  if (!ahead && in_flight_.size() >= num_stages()) return texts;
  const std::vector<SequenceId> ready = forced_drafts_->take_ready();
  if (ahead && !ready.empty() && num_decoding_in_step() > kMostSequencesAhead) return texts;
  try {
    // As for the speculator's drafts.
    const MemoryReserve::User none(nullptr);
    for (const SequenceId id : ready) {
      const int64_t num_awaited = scheduler_.num_awaited_tokens(id);
      if (!ahead && num_awaited > 0) continue;
      const SequenceOwner& owner = owners_.at(id);
      auto draft =
          answer_masks_->forced_tokens(owner.request->request(), static_cast<uint32_t>(owner.index),
                                       static_cast<size_t>(num_awaited), setup_.max_forced_drafts);
      if (draft.size() >= (ahead ? kLeastDraftsAhead : 1)) texts.emplace_back(id, std::move(draft));
    }
  } catch (const std::bad_alloc&) {
    // These texts take a step a token.
  }
  return texts;
}

void EngineCore::learn_drafting(const InFlight& step, const StepOutput& output, double elapsed) {
  const double drafting_s = output.draft_s + output.draft_reading_s;
  if (step.has_prefill) {
    if (prompt_pace_.token_s() > 0) speculator_->learn_prompts(prompt_pace_.token_s());
  } else if (output.is_first_of_kind) {
    speculator_->skip_step();
  } else if (step.num_tokens > 0) {
    speculator_->learn_step(step.num_tokens, std::max(elapsed - drafting_s, 0.0));
  }
  if (drafting_s <= 0) return;
  size_t num_drafts = 0;
  size_t num_passes = 0;
  for (const auto& [id, count] : step.num_drafts) {
    num_drafts += count;
    num_passes = std::max(num_passes, count);
  }
  speculator_->learn_drafting(num_drafts, num_passes, output.draft_s, output.draft_reading_s);
}

void EngineCore::learn_outcome(const InFlight& step, const StepOutput& output, double seconds) {
  if (step.has_prefill || output.is_first_of_kind || output.is_void) return;
  if (!step.forced.empty()) return;  // its tokens are not what other steps bring
  size_t num_tokens = 0;
  for (const SequenceOutput& sequence : output.sequences) num_tokens += sequence.token_ids.size();
  if (num_tokens == 0) return;
  speculator_->learn_outcome(output.sequences.size(), num_tokens, seconds,
                             !step.num_drafts.empty());
}

void EngineCore::learn_drafts(const SequenceUpdate& update, size_t num_drafts, bool ends) {
  count_draft(counters_.speculative, num_drafts, update.token_ids.size() - 1);
  speculate([&] {
    if (ends && !speculator_->has(update.id)) return;  // its prompt need not be indexed
    speculator_->append(update.id, owners_.at(update.id).request->request(),
                        std::span(update.token_ids), num_drafts);
    if (ends) speculator_->remove(update.id);
  });
}

void EngineCore::learn_forced(const SequenceUpdate& update, bool had_forced, bool ends) {
  if (ends) {
    forced_drafts_->remove(update.id);
  } else if (!update.token_ids.empty()) {
    // All but the last are drafts that were kept.
    forced_drafts_->append(update.id, had_forced ? update.token_ids.size() - 1 : 0);
  }
}

void EngineCore::forget_drafts(SequenceId id) {
  speculate([&] { speculator_->remove(id); });
  if (forced_drafts_) forced_drafts_->remove(id);
}

}  // namespace quire
