#pragma once
// What the engine's loop asks for drafts: a proposer, and how many drafts each sequence is worth.
//
//   if (speculator.drafts_next()) wait for the step in flight: drafts need its tokens
//   for (id : speculator.take_ready()) scheduler.propose(id, speculator.propose(id));
//   ... schedule, run; for each sequence that got tokens: speculator.append(...)
//
// The runner verifies drafts (SequenceState::append_sampled in runner/sequence_table.h).
//
// Sequences of a step whose drafts are worth their cost have equally many: as many as are best for
// the mean of their rates. A sequence's own rate, of its last few drafts, is mostly chance, and
// steps of ever other rows each need a graph of their own.
//
// A sequence behind whose newest known token the proposer has nothing has no drafts, and nobody
// waits for it. If its drafts are not worth their cost (draft_limit.h), one token in kProbeInterval
// gets a single draft, so that a change is noticed; unless drafts have lost more time than they
// may. It is one in kRareProbeInterval where a model's draft takes longer than a token, kept or
// not, and where many sequences run. A new sequence starts with the recent rate of kept drafts of
// all sequences. One step in kPlainInterval that would have drafts has none, to measure how long a
// step takes without. Where many sequences run, drafts must also have been seen to gain
// (draft_trial.h), and at least one sequence in kLeastShare must have some: all wait for them.
//
// Thread safety: one thread at a time, the engine's.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "quire/speculative_config.h"
#include "request/request.h"
#include "request/scheduled_batch.h"
#include "speculative/draft_limit.h"
#include "speculative/draft_trial.h"
#include "speculative/proposer.h"

namespace quire {

class Speculator {
 public:
  static constexpr int kProbeInterval = 32;
  static constexpr int kRareProbeInterval = 512;
  static constexpr int kPlainInterval = 64;
  static constexpr size_t kLeastShare = 4;

  // A config that passed check_speculative_config(). `num_groups`: a step has an equal part of the
  // sequences, as one of so many.
  explicit Speculator(const SpeculativeConfig& config, int num_groups = 1);
  // `adaptive`: SpeculativeConfig's.
  Speculator(std::unique_ptr<Proposer> proposer, size_t num_speculative_tokens,
             bool adaptive = true);

  // A step brought a sequence tokens, at least one, and verified `num_drafts` drafts of propose().
  // Without any, tokens beside the last are drafts that the caller has elsewhere. The first call
  // for an id adds it.
  void append(SequenceId id, const Request& request, std::span<const int32_t> token_ids,
              size_t num_drafts);
  // Whether append() was called for the sequence.
  bool has(SequenceId id) const { return states_.contains(id); }
  // The sequence has ended. Unknown ids: no effect.
  void remove(SequenceId id);
  // A step of `num_tokens` tokens, none of a prompt, took `seconds`, without the time of a model
  // that makes drafts. This, or one of the next two, comes before the append() of its sequences.
  void learn_step(int64_t num_tokens, double seconds);
  // A step of the kind was made ready first, so that its time says nothing. Its probes are
  // repeated.
  void skip_step();
  // A step had prompts; they take about `seconds` a token.
  void learn_prompts(double seconds);
  // A model made `num_drafts` drafts in `num_passes` passes over its sequences, which took
  // `seconds`, and needed `reading_s` to read what it had not read yet.
  void learn_drafting(size_t num_drafts, size_t num_passes, double seconds, double reading_s);

  // A step of `num_sequences` sequences, none of which read its prompt, brought `num_tokens`
  // tokens; its result came `seconds` after the one before, without what a model that makes drafts
  // had to read.
  void learn_outcome(size_t num_sequences, size_t num_tokens, double seconds, bool has_drafts);

  // Whether a draft model should read the prompts of a step that many sequences are in: drafts are
  // worth their cost at the recent rate of kept drafts of all sequences, and do not pause. What was
  // not read is read before the first draft.
  bool reads_prompts(size_t num_sequences) const;

  // Whether any sequence should have drafts behind its newest token.
  bool drafts_next() const { return enough_draft() && may_draft(); }
  // Sequences whose drafts are worth their cost and that got tokens since the last call.
  std::vector<SequenceId> take_ready();
  // The drafts of a sequence that take_ready() named; may be none.
  std::vector<int32_t> propose(SequenceId id);

 private:
  struct State {
    speculative_internal::Acceptance acceptance;
    size_t limit = 0;          // of drafts behind the newest token
    bool probes = false;       // the limit is a probe's
    bool ready = false;        // in ready_
    int tokens_undrafted = 0;  // since take_ready() last named it
  };

  // Sequences of a step, at least 1.
  size_t num_in_step() const;
  // Whether steps of that many sequences with drafts have not been seen to lose.
  bool may_draft(size_t num_sequences) const {
    return !adaptive_ || trial_.may_draft(num_sequences);
  }
  bool may_draft() const { return may_draft(num_in_step()); }
  bool has_many() const {
    return num_in_step() >= speculative_internal::DraftTrial::kLeastSequences;
  }
  // Whether so many sequences should have drafts that the others may wait for them.
  bool enough_draft() const;
  // The cost of one more draft of each sequence, in tokens of a step with one row each.
  double cost_of_draft() const;
  // Enters the time that drafts of a model saved.
  void enter_savings(size_t num_drafts, size_t num_kept);
  // Learns anew what steps take where each sequence has drafts, if something has changed.
  void price_drafts();
  // The number of drafts of a sequence that are worth their cost at this rate.
  size_t worthwhile(double rate) const;
  void set_limit(SequenceId id, State& state);
  void clear_limit(State& state);
  // Sequences of a step get as many drafts as are best for the mean of their rates.
  void share_limit(std::span<const SequenceId> ids);

  std::unique_ptr<Proposer> proposer_;
  size_t most_;
  bool adaptive_;
  size_t num_groups_ = 1;
  speculative_internal::StepCost cost_;
  speculative_internal::StepCost drafting_;  // of passes of a model that makes drafts
  speculative_internal::DraftLedger ledger_;
  speculative_internal::DraftTrial trial_;
  speculative_internal::Acceptance acceptance_;  // of all sequences
  std::unordered_map<SequenceId, State> states_;
  std::vector<SequenceId> ready_;
  // Of a step in which each sequence has so many drafts; by that number.
  std::vector<double> step_seconds_;
  size_t priced_sequences_ = 0;  // of these steps; 0: to be learnt anew
  size_t shared_limit_ = 0;      // of the last step of several sequences
  int probe_interval_ = kProbeInterval;
  bool repeats_probes_ = false;
  int drafted_steps_ = 0;    // since one that was to have none
  size_t num_drafting_ = 0;  // states with a limit above 0
};

}  // namespace quire
