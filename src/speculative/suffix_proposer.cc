#include "speculative/suffix_proposer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"

namespace quire {

using speculative_internal::SuffixDrafts;
using speculative_internal::SuffixLimits;
using speculative_internal::SuffixTree;

SuffixProposer::SuffixProposer(const SpeculativeConfig& config, SuffixMemory memory)
    : memory_(memory),
      depth_(static_cast<size_t>(config.suffix_decoding_max_tree_depth)),
      factor_(config.suffix_decoding_max_spec_factor),
      min_token_prob_(config.suffix_decoding_min_token_prob) {
  if (config.suffix_decoding_max_cached_requests == 0) return;
  history_.emplace(speculative_internal::SuffixHistoryLimits{
      .depth = depth_,
      .max_answers = config.suffix_decoding_max_cached_requests,
      .max_bytes = memory.history});
}

void SuffixProposer::add(SequenceId id, const Request& request) {
  const std::span<const int32_t> prompt = request.prompt_token_ids;
  const auto last = prompt.last(std::min(depth_, prompt.size()));
  const auto [entry, is_new] = states_.try_emplace(id, State{.salt = request.cache_salt,
                                                             .tree = SuffixTree(depth_),
                                                             .newest = {last.begin(), last.end()},
                                                             .num_prompt_tokens = last.size()});
  check(is_new, "a sequence is added once");
  bytes_ += entry->second.tree.bytes();
  extend_tree(entry->second, prompt);
}

void SuffixProposer::append(SequenceId id, std::span<const int32_t> token_ids) {
  State& state = states_.at(id);
  state.newest.insert(state.newest.end(), token_ids.begin(), token_ids.end());
  extend_tree(state, token_ids);
}

void SuffixProposer::extend_tree(State& state, std::span<const int32_t> token_ids) {
  for (const int32_t token_id : token_ids) {
    if (state.tree.bytes() > memory_.sequence) begin_anew(state);
    if (bytes_ > memory_.sequences) begin_anew(largest());
    const size_t before = state.tree.bytes();
    state.tree.append(token_id);
    bytes_ += state.tree.bytes() - before;
  }
}

void SuffixProposer::begin_anew(State& state) {
  bytes_ -= state.tree.bytes();
  state.tree = SuffixTree(depth_);
  bytes_ += state.tree.bytes();
}

SuffixProposer::State& SuffixProposer::largest() {
  return std::ranges::max_element(states_, {},
                                  [](const auto& entry) { return entry.second.tree.bytes(); })
      ->second;
}

std::vector<int32_t> SuffixProposer::drafts(SequenceId id, size_t most) const {
  const State& state = states_.at(id);
  const SuffixLimits limits = {.most = most, .factor = factor_, .min_token_prob = min_token_prob_};
  SuffixDrafts drafts = state.tree.after_text(limits);
  if (history_) {
    SuffixDrafts others = history_->after(state.salt, state.newest, limits);
    if (others.score > drafts.score) drafts = std::move(others);
  }
  return std::move(drafts.token_ids);
}

void SuffixProposer::remove(SequenceId id) {
  const auto entry = states_.find(id);
  if (entry == states_.end()) return;
  const State& state = entry->second;
  const auto answer = std::span(state.newest).subspan(state.num_prompt_tokens);
  if (history_) history_->add(state.salt, answer);
  bytes_ -= state.tree.bytes();
  states_.erase(entry);
}

}  // namespace quire
