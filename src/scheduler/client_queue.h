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

struct ClientQueue {
  uint64_t id = 0;
  uint64_t joined = 0;  // the order in which clients came
  int32_t weight = 0;
  VirtualTime virtual_time = 0;
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
