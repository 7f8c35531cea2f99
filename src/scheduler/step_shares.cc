// Scheduler::StepMaker: what each client, and each of its prompts, may have of the step.
#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "scheduler/step_maker.h"

namespace quire {

using scheduler_internal::Claim;
using scheduler_internal::divide;
using scheduler_internal::kLeastGrant;
using scheduler_internal::VirtualTime;

void Scheduler::StepMaker::set_virtual_times() {
  const VirtualTime level = s_.clock.level();
  VirtualTime start = level;
  for (ClientQueue* client : s_.by_use) {
    // What it got while nobody else wanted it, or did not get for want of a place, is forgotten.
    client->virtual_time =
        std::clamp(client->virtual_time, level - client->most_behind, level + client->most_ahead);
    if (client->num_prompts > 0 && !client->begins) start = std::min(start, client->virtual_time);
  }
  for (ClientQueue* client : s_.by_use) {
    if (std::exchange(client->begins, false)) {
      client->virtual_time = std::max(client->virtual_time, start);
    }
  }
}

void Scheduler::StepMaker::share_stages() {
  int64_t num_ready = 0;  // of those that decode
  int64_t num_pending = 0;
  for (const ClientQueue* client : order_) {
    for (const ScheduledState* state : client->running) {
      if (state->is_prefilling()) {
        num_pending += s_.num_pending_tokens(*state);
        continue;
      }
      if (s_.num_pending_tokens(*state) > 0) ++num_ready;
    }
    // Where there are so many tokens, the chunk is no longer for more.
    for (const ScheduledState* state : client->waiting) {
      if (num_pending >= kStageChunks * s_.config.max_num_batched_tokens) break;
      num_pending += state->sequence.num_tokens();
    }
  }
  prefill_left_ = std::min(prefill_left_, stage_chunk(s_.config, num_pending));
  const int64_t num_stages = s_.config.num_stages;
  const int64_t num_free = std::max<int64_t>(1, num_stages - std::ssize(s_.in_flight));
  decodes_left_ = std::min(ceil_div(num_decoding_, num_stages), ceil_div(num_ready, num_free));
}

void Scheduler::StepMaker::share_prompt_tokens() {
  if (with_prompts_.empty()) return;
  // What is left beside the decodes, which every step has room for.
  int64_t total = prefill_left_;
  if (with_prompts_.size() > 1) {
    total = std::min(total, order_by_use_ ? tokens_left() : tokens_left() - num_decoding_);
  }
  const auto num_claims =
      std::min<size_t>(with_prompts_.size(),
                       static_cast<size_t>(std::max(kMaxSharingPrefills, total / kLeastGrant)));
  const int64_t most = std::min(total, s_.config.max_num_batched_tokens);
  std::vector<Claim> claims;
  claims.reserve(num_claims);
  for (size_t i = 0; i < num_claims; ++i) {
    const ClientQueue& client = *with_prompts_[i];
    claims.push_back({client.virtual_time, client.weight, claim_of(client, most)});
  }
  const std::vector<int64_t> grants = divide(most, claims);
  for (size_t i = 0; i < with_prompts_.size(); ++i) {
    with_prompts_[i]->limit = i < num_claims ? grants[i] : 0;
  }
  if (with_prompts_.size() == 1) with_prompts_.front()->limit = total;
}

// Tokens in the prefix cache are counted here: they are free once they are found there.
int64_t Scheduler::StepMaker::claim_of(const ClientQueue& client, int64_t most) const {
  int64_t claim = 0;
  for (const ScheduledState* state : client.running) {
    if (!state->is_prefilling()) continue;
    claim += s_.num_pending_tokens(*state) * prompt_token_cost(*state);
  }
  for (const ScheduledState* state : client.waiting) {
    if (claim >= most) break;
    claim += state->sequence.num_tokens() * prompt_token_cost(*state);
  }
  return std::min(claim, most);
}

int64_t Scheduler::StepMaker::share_of(const ClientQueue& client) {
  const int64_t num_sharing = std::clamp<int64_t>(client.num_prompts, 1, kMaxSharingPrefills);
  // Rounded up, so that the parts make the whole.
  return (client.limit - 1) / num_sharing + 1;
}

int64_t Scheduler::StepMaker::prefill_length(const ScheduledState& state, int64_t share) const {
  const int64_t limit = std::min(prefill_left_, state.client.limit - state.client.taken);
  if (limit <= 0) return 0;
  const int64_t kept = order_by_use_ ? 0 : num_others_behind_;
  // Of a sequence that waits, all tokens: those in the prefix cache are not known yet.
  const int64_t pending = std::min(s_.num_pending_tokens(state), tokens_left() - kept);
  const int64_t cost = prompt_token_cost(state);
  const int64_t most = std::min(limit, share - num_scheduled(state) * cost);
  // Rounded up, so that a step with room for a token has one.
  return most <= 0 ? 0 : std::min(pending, (most - 1) / cost + 1);
}

}  // namespace quire
