#include "speculative/speculator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

using speculative_internal::Acceptance;
using speculative_internal::worthwhile_drafts;

// The rate at which drafts are kept, before any was verified.
constexpr double kFirstRate = 0.5;
// The weight of the newest draft in the rate of its sequence, and in that of all.
constexpr double kSequenceSmoothing = 0.15;
constexpr double kOverallSmoothing = 0.02;

}  // namespace

Speculator::Speculator(const SpeculativeConfig& config, int num_groups)
    : Speculator(make_proposer(config), static_cast<size_t>(config.num_speculative_tokens),
                 config.adaptive) {
  num_groups_ = static_cast<size_t>(num_groups);
}

Speculator::Speculator(std::unique_ptr<Proposer> proposer, size_t num_speculative_tokens,
                       bool adaptive)
    : proposer_(std::move(proposer)),
      most_(num_speculative_tokens),
      adaptive_(adaptive),
      acceptance_(kFirstRate, kOverallSmoothing) {}

void Speculator::append(SequenceId id, const Request& request, std::span<const int32_t> token_ids,
                        size_t num_drafts) {
  check(!token_ids.empty(), "a step brought tokens");
  const auto [entry, is_new] =
      states_.try_emplace(id, State{Acceptance(acceptance_.rate(), kSequenceSmoothing)});
  State& state = entry->second;
  if (is_new) proposer_->add(id, request);
  proposer_->append(id, token_ids);
  // Without drafts of a proposer, tokens beside the last are the caller's drafts.
  const size_t num_kept = num_drafts == 0 ? 0 : token_ids.size() - 1;
  state.acceptance.learn(num_drafts, num_kept);
  acceptance_.learn(num_drafts, num_kept);
  enter_savings(num_drafts, num_kept);
  if (repeats_probes_ && num_drafts > 0) state.tokens_undrafted = probe_interval_;
  set_limit(id, state);
  if (state.limit > 0 && !std::exchange(state.ready, true)) ready_.push_back(id);
}

void Speculator::remove(SequenceId id) {
  const auto entry = states_.find(id);
  if (entry == states_.end()) return;
  clear_limit(entry->second);
  if (entry->second.ready) std::erase(ready_, id);
  states_.erase(entry);
  proposer_->remove(id);
}

void Speculator::skip_step() {
  repeats_probes_ = true;
}

void Speculator::learn_prompts(double seconds) {
  repeats_probes_ = false;
  cost_.learn_prompts(seconds);
}

void Speculator::learn_step(int64_t num_tokens, double seconds) {
  repeats_probes_ = false;
  cost_.learn(num_tokens, seconds);
  priced_sequences_ = 0;
  ledger_.elapse(seconds);
}

void Speculator::learn_drafting(size_t num_drafts, size_t num_passes, double seconds,
                                double reading_s) {
  priced_sequences_ = 0;
  if (num_passes > 0) {
    const auto passes = static_cast<double>(num_passes);
    drafting_.learn(std::max<int64_t>(1, std::lround(static_cast<double>(num_drafts) / passes)),
                    seconds / passes);
  }
  ledger_.enter(-seconds - reading_s);
}

void Speculator::learn_outcome(size_t num_sequences, size_t num_tokens, double seconds,
                               bool has_drafts) {
  trial_.learn(num_sequences, num_tokens, seconds, has_drafts);
}

bool Speculator::enough_draft() const {
  if (num_drafting_ == 0) return false;
  return !adaptive_ || !has_many() || num_drafting_ * kLeastShare >= states_.size();
}

size_t Speculator::num_in_step() const {
  return std::max<size_t>(1, ceil_div(states_.size(), num_groups_));
}

bool Speculator::reads_prompts(size_t num_sequences) const {
  return may_draft(std::max(num_sequences, num_in_step())) && worthwhile(acceptance_.rate()) > 0;
}

size_t Speculator::worthwhile(double rate) const {
  if (!adaptive_) return most_;
  if (!ledger_.may_draft()) return 0;
  return step_seconds_.empty() ? worthwhile_drafts(rate, cost_of_draft(), most_)
                               : worthwhile_drafts(rate, step_seconds_);
}

double Speculator::cost_of_draft() const {
  const auto rows = static_cast<int64_t>(num_in_step());
  const double verifying = cost_.tokens_per_row(rows);
  const double step_s = cost_.seconds(rows);
  return step_s > 0 ? verifying + drafting_.seconds(rows) / step_s : verifying;
}

void Speculator::price_drafts() {
  if (priced_sequences_ == states_.size()) return;
  priced_sequences_ = states_.size();
  const double cost = cost_of_draft();
  probe_interval_ = cost > 1 || has_many() ? kRareProbeInterval : kProbeInterval;
  const auto rows = static_cast<int64_t>(num_in_step());
  const double plain_s = cost_.seconds(rows);
  const double pass_s = drafting_.seconds(rows);
  step_seconds_.assign(1, plain_s > 0 ? plain_s : 1.0);
  for (size_t count = 1; count <= most_; ++count) {
    const auto drafts = static_cast<double>(count);
    const double verifying_s =
        plain_s > 0 ? cost_.seconds(rows * static_cast<int64_t>(1 + count)) + drafts * pass_s
                    : 1 + drafts * cost;
    // More rows are no faster, whatever single steps took.
    step_seconds_.push_back(std::max(verifying_s, step_seconds_.back()));
  }
}

void Speculator::enter_savings(size_t num_drafts, size_t num_kept) {
  const auto rows = static_cast<int64_t>(states_.size());
  if (num_drafts == 0 || drafting_.seconds(rows) <= 0) return;
  const double token_s = cost_.seconds(rows) / static_cast<double>(rows);
  const double row_s = cost_.tokens_per_row(rows) * token_s;
  ledger_.enter(static_cast<double>(num_kept) * token_s - static_cast<double>(num_drafts) * row_s);
}

void Speculator::set_limit(SequenceId id, State& state) {
  clear_limit(state);
  price_drafts();
  ++state.tokens_undrafted;
  if (!proposer_->has_drafts(id)) return;
  state.limit = worthwhile(state.acceptance.rate());
  state.probes =
      ledger_.may_draft() && state.limit == 0 && state.tokens_undrafted >= probe_interval_;
  if (state.probes) state.limit = 1;
  if (state.limit > 0) ++num_drafting_;
}

void Speculator::clear_limit(State& state) {
  if (std::exchange(state.limit, 0) > 0) --num_drafting_;
}

void Speculator::share_limit(std::span<const SequenceId> ids) {
  std::vector<State*> states;
  double sum_of_rates = 0;
  for (const SequenceId id : ids) {
    State& state = states_.at(id);
    if (state.probes) continue;
    states.push_back(&state);
    sum_of_rates += state.acceptance.rate();
  }
  if (!adaptive_ || states.size() < 2) return;
  const double rate = sum_of_rates / static_cast<double>(states.size());
  shared_limit_ = worthwhile_drafts(rate, step_seconds_, shared_limit_);
  // Each is worth at least one, so all are by their mean, or as good as.
  for (State* state : states) state->limit = std::max<size_t>(1, shared_limit_);
}

std::vector<SequenceId> Speculator::take_ready() {
  if (!enough_draft()) return {};
  std::vector<SequenceId> ids;
  for (const SequenceId id : std::exchange(ready_, {})) {
    State& state = states_.at(id);
    state.ready = false;
    if (state.limit == 0) continue;
    // Only here, as a probe waits for the tokens of the step in flight.
    state.tokens_undrafted = 0;
    ids.push_back(id);
  }
  if (!may_draft()) return {};
  if (adaptive_ && !ids.empty() && ++drafted_steps_ == kPlainInterval) {
    drafted_steps_ = 0;
    ids.clear();
  }
  share_limit(ids);
  return ids;
}

std::vector<int32_t> Speculator::propose(SequenceId id) {
  return proposer_->propose(id, states_.at(id).limit);
}

}  // namespace quire
