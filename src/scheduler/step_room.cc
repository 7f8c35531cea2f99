// Scheduler::StepMaker: places and blocks, and who gives them up.
#include <algorithm>
#include <vector>

#include "scheduler/step_maker.h"

namespace quire {

using scheduler_internal::ClientQueue;
using scheduler_internal::holds_less;

bool Scheduler::StepMaker::free_block(ClientQueue& client, size_t position) {
  while (s_.pool.num_free() == 0 && position < client.running.size()) {
    // Its own sequences up to this one, and those of clients that had their turns, are in the step
    // or, with several stages, in another.
    ClientQueue* most = &client;
    for (size_t i = turn_ + 1; i < order_.size(); ++i) {
      ClientQueue* other = order_[i];
      if (holds_less(most->num_blocks, most->weight, other->num_blocks, other->weight)) {
        most = other;
      }
    }
    preempt(*most);
    may_admit_ = false;  // another sequence would only be preempted next
  }
  return position < client.running.size();
}

bool Scheduler::StepMaker::allocate_waiting(ScheduledState& state) {
  const std::vector<int32_t> hits = s_.lookup_prefix(state);
  const auto num_hits = static_cast<int64_t>(hits.size());
  const int64_t num_blocks = s_.blocks_for(state.sequence.num_tokens());
  if (!free_blocks(state.client, num_blocks, hits)) return false;

  for (const int32_t id : hits) state.blocks.push_back(s_.pool.share(id));
  for (int64_t i = num_hits; i < num_blocks; ++i) state.blocks.push_back(s_.pool.take());
  state.client.num_blocks += num_blocks;
  state.num_filed_blocks = num_hits;
  state.num_computed_tokens = num_hits * s_.config.block_size;
  state.num_prefill_tokens = state.sequence.num_tokens();
  if (!state.num_cached_tokens) {
    state.num_cached_tokens = state.num_computed_tokens;
    if (s_.uses_prefix_cache(state.sequence)) {
      s_.totals.prefix_cache_queried_tokens += state.sequence.num_tokens();
      s_.totals.prefix_cache_hit_tokens += state.num_computed_tokens;
    }
  }
  return true;
}

int64_t Scheduler::StepMaker::num_blocks_short(int64_t num_blocks,
                                               const std::vector<int32_t>& hits) const {
  const int64_t num_new = num_blocks - std::ssize(hits);
  const int64_t num_free_hits =
      std::ranges::count_if(hits, [this](int32_t id) { return s_.pool.ref_count(id) == 0; });
  return num_new + num_free_hits + num_blocks_behind_ - s_.pool.num_free();
}

bool Scheduler::StepMaker::free_blocks(const ClientQueue& client, int64_t num_blocks,
                                       const std::vector<int32_t>& hits) {
  // A client gives up a sequence only if it still holds as much for its weight as the other then
  // does: so the other will not have to give it back.
  const int64_t then = client.num_blocks + num_blocks;
  const auto can_give = [&](const ClientQueue& other) {
    return !other.running.empty() &&
           !holds_less(other.num_blocks - std::ssize(other.running.back()->blocks), other.weight,
                       then, client.weight);
  };
  while (num_blocks_short(num_blocks, hits) > 0) {
    ClientQueue* most = nullptr;
    for (size_t i = turn_ + 1; may_preempt_ && i < order_.size(); ++i) {
      ClientQueue* other = order_[i];
      if (!can_give(*other)) continue;
      if (most == nullptr ||
          holds_less(most->num_blocks, most->weight, other->num_blocks, other->weight)) {
        most = other;
      }
    }
    if (most == nullptr) return false;
    preempt(*most);
  }
  return true;
}

ClientQueue* Scheduler::StepMaker::giver_of_place(const ClientQueue& client) {
  // With so many for their weight, clients behind one that got none get none either.
  const int64_t then = std::ssize(client.running) + 1;
  if (refused_place_ != nullptr &&
      !holds_less(then, client.weight, std::ssize(refused_place_->running) + 1,
                  refused_place_->weight)) {
    return nullptr;
  }
  ClientQueue* most = nullptr;
  for (size_t i = turn_ + 1; may_preempt_ && i < order_.size(); ++i) {
    ClientQueue* other = order_[i];
    // It still has as many for its weight as the other then has.
    if (holds_less(std::ssize(other->running) - 1, other->weight, then, client.weight)) continue;
    if (most == nullptr || holds_less(std::ssize(most->running), most->weight,
                                      std::ssize(other->running), other->weight)) {
      most = other;
    }
  }
  if (most == nullptr) refused_place_ = &client;
  return most;
}

// Of a client that has its turn, or is behind it.
void Scheduler::StepMaker::preempt(ClientQueue& client) {
  if (s_.needs_block(*client.running.back())) --num_blocks_behind_;
  --(&client == order_[turn_] ? num_own_behind_ : num_others_behind_);
  s_.preempt_newest(client);
}

}  // namespace quire
