#pragma once
// The sequences of one client, and what they use.
//
// Thread safety: none needed; the scheduler's thread owns it.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <tuple>
#include <vector>

#include "scheduler/fair_share.h"
#include "scheduler/scheduled_state.h"

namespace quire::scheduler_internal {

// Which of a client's sequences goes first.
inline bool goes_before(const ScheduledState* a, const ScheduledState* b) {
  const auto key = [](const ScheduledState& state) {
    return std::tuple(state.sequence.request()->priority, state.arrival);
  };
  return key(*a) < key(*b);
}

// Whether `a` holds less than `b` of something, for its weight.
inline bool holds_less(int64_t a, int32_t weight_a, int64_t b, int32_t weight_b) {
  return a * weight_b < b * weight_a;
}

// A step's prompt tokens are divided between so many clients that each gets about this many at
// least: shorter chunks cost more than they are worth. The others are next.
inline constexpr int64_t kLeastGrant = 64;

struct ClientQueue {
  uint64_t id = 0;
  uint64_t joined = 0;  // the order in which clients came
  int32_t weight = 0;
  VirtualTime virtual_time = 0;
  // By its weight: what a token costs it; how far behind the level, and ahead of it, it may be.
  VirtualTime cost_of_one = 0;
  VirtualTime most_behind = 0;
  VirtualTime most_ahead = 0;
  bool begins = false;     // it had no prompts to compute and has one since the last step
  int64_t num_blocks = 0;  // that `running` hold
  // Both in the order of goes_before().
  std::vector<ScheduledState*> running;
  std::deque<ScheduledState*> waiting;

  // Steps in which others left an adapter's place to one of `waiting`, and it did not take it.
  int64_t num_unused_lora_turns = 0;

  // Of the step that is being made: prompts, prompt tokens that are given to it and taken by it,
  // and whether it had to give up a sequence.
  int64_t num_prompts = 0;
  int64_t limit = 0;
  int64_t taken = 0;
  bool gave_up_sequence = false;

  // `step_tokens`: that a step has room for.
  void set_weight(int32_t new_weight, int64_t step_tokens) {
    if (weight == new_weight) return;
    weight = new_weight;
    cost_of_one = token_cost(1, weight);
    most_behind = token_cost(2 * kLeastGrant, weight);
    most_ahead = token_cost(step_tokens, weight);
  }
  bool empty() const { return running.empty() && waiting.empty(); }
  bool has_prompts() const {
    return !waiting.empty() || std::ranges::any_of(running, [](const ScheduledState* state) {
      return state->is_prefilling();
    });
  }
};

// Puts a sequence in its place.
template <typename Sequences>
void insert_in_order(Sequences& sequences, ScheduledState* state) {
  sequences.insert(std::ranges::upper_bound(sequences, state, goes_before), state);
}

}  // namespace quire::scheduler_internal
