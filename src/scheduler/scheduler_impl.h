#pragma once
// What a scheduler keeps. step_maker.h makes steps of it, scheduler.cc does all else.
//
// Thread safety: none needed; the scheduler's thread owns it.
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/block_pool.h"
#include "scheduler/client_queue.h"
#include "scheduler/fair_share.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/scheduled_state.h"
#include "scheduler/scheduler.h"

namespace quire {

struct Scheduler::Impl {
  using ClientQueue = scheduler_internal::ClientQueue;
  using ScheduledState = scheduler_internal::ScheduledState;

  // A chunk whose result is awaited.
  struct InFlightChunk {
    SequenceId id;
    int64_t start;
    int64_t most_tokens;  // that it may bring
  };
  struct InFlightStep {
    uint64_t step;
    std::vector<InFlightChunk> chunks;
  };

  explicit Impl(SchedulerConfig scheduler_config)
      : config(std::move(scheduler_config)),
        cache(config.block_size),
        pool(config.num_blocks, [this](int32_t block_id) { cache.erase(block_id); }) {}

  int64_t blocks_for(int64_t num_tokens) const {
    return (num_tokens + config.block_size - 1) / config.block_size;
  }
  // Tokens that the next step could compute; 0 where results must come first, or a length limit is
  // known to end the sequence.
  int64_t num_pending_tokens(const ScheduledState& state) const {
    const int64_t num_tokens = state.num_tokens();
    if (num_tokens >= state.max_num_tokens || goes_round(state)) return 0;
    if (state.verifies && config.num_stages > 1) return 0;
    return num_tokens - state.num_computed_tokens;
  }
  // Of a sequence that decodes: whether it is in one of the steps of a pipeline that must be ahead
  // of its next one.
  bool goes_round(const ScheduledState& state) const {
    if (config.num_stages == 1 || state.num_placeholders == 0 || !state.running) return false;
    const auto num_ahead = static_cast<size_t>(config.num_stages);
    return in_flight.size() < num_ahead ||
           *state.chunk_step > in_flight[in_flight.size() - num_ahead].step;
  }
  // Whether the next token of a running sequence needs a block that it does not have.
  bool needs_block(const ScheduledState& state) const {
    return lacks_block(state) && num_pending_tokens(state) > 0;
  }
  // The same of one that has tokens to compute.
  bool lacks_block(const ScheduledState& state) const {
    return std::ssize(state.blocks) * config.block_size <= state.num_computed_tokens;
  }
  void count_running(ScheduledState& state);
  void count_stopped(const ScheduledState& state);
  bool has_lora_room(uint64_t lora_id) const {
    return running_loras.contains(lora_id) || std::ssize(running_loras) < config.max_loras;
  }
  // The adapter of the sequence whose turn it is.
  uint64_t lora_id_in_turn() const {
    return lora_waiters.at(*lora_turn)->sequence.request()->lora_id;
  }
  // Says that a sequence waits for its adapter, or does not wait any more.
  void begin_lora_wait(ScheduledState& state);
  void end_lora_wait(ScheduledState& state);
  void find_lora_turn();
  // Notes that the sequence whose turn it is was held by something else than adapters in this step,
  // and after several such steps has others begin again.
  void count_unused_lora_turn();
  // Whether a waiting sequence may begin, as far as adapters are concerned; if not, it is noted
  // that it waits for that.
  bool may_begin(ScheduledState& state);
  // Whether the prefix cache may serve it: logprobs of the prompt come only from computing it.
  bool uses_prefix_cache(const Sequence& sequence) const {
    return config.enable_prefix_caching && !sequence.params().prompt_logprobs;
  }
  std::vector<int32_t> lookup_prefix(ScheduledState& state) const;
  void file_full_blocks(ScheduledState& state);

  // The client of a new sequence.
  ClientQueue& client_of(const Request& request);
  // Takes its last sequence's place and blocks; that goes back to the queue.
  void preempt_newest(ClientQueue& client);
  void stop_running(ScheduledState& state);
  void end(ScheduledState& state, FinishReason reason);
  // Appends what came to the sequence, up to its end, and says so in the update.
  void take_tokens(ScheduledState& state, SequenceOutput& output, SequenceUpdate& update) const;
  std::optional<SequenceUpdate> take_output(ScheduledState& state, const InFlightChunk& chunk,
                                            SequenceOutput output);

  // Takes the results of a step that are void; `failed`: it is the one that they are void for.
  void drop_void(const InFlightStep& step, bool failed);

  void check_queues() const;
  void check_loras() const;
  void check_client(const ClientQueue& client) const;
  void check_blocks(const ScheduledState& state, std::vector<int32_t>& held) const;

  SchedulerConfig config;
  PrefixCache cache;
  BlockPool pool;
  std::unordered_map<SequenceId, std::unique_ptr<ScheduledState>> states;
  std::unordered_map<uint64_t, std::unique_ptr<ClientQueue>> clients;  // that have sequences
  // All of these: in the order of the last step, by what each has used, then those that came since.
  std::vector<ClientQueue*> by_use;
  scheduler_internal::VirtualClock clock;
  int64_t num_running = 0;
  std::unordered_map<uint64_t, int64_t> running_loras;  // how many running sequences have each
  std::map<uint64_t, ScheduledState*> lora_waiters;     // for their adapters, by arrival
  // The arrival of the first of these that was overtaken so often that none may overtake it now.
  std::optional<uint64_t> lora_turn;
  std::deque<InFlightStep> in_flight;
  std::vector<SequenceId> removed;  // since the last batch
  uint64_t next_arrival = 0;
  uint64_t next_client = 0;
  uint64_t next_step = 0;
  uint64_t num_failed_steps = 0;
  SchedulerStats totals;  // the fields that count since the start
};

}  // namespace quire
