#include "scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "scheduler/scheduler_impl.h"

namespace quire {

using scheduler_internal::goes_before;
using scheduler_internal::insert_in_order;

std::vector<int32_t> Scheduler::Impl::lookup_prefix(ScheduledState& state) const {
  const Sequence& sequence = state.sequence;
  if (!uses_prefix_cache(sequence)) return {};
  const std::string& salt = sequence.request()->cache_salt;
  cache.extend_hashes(sequence.tokens(), salt, state.block_hashes);
  // The last token is always computed: its logits give the next one.
  const auto most = static_cast<size_t>((sequence.num_tokens() - 1) / config.block_size);
  return cache.lookup(sequence.tokens(), salt, std::span(state.block_hashes).first(most));
}

void Scheduler::Impl::file_full_blocks(ScheduledState& state) {
  if (!config.enable_prefix_caching) return;
  const Sequence& sequence = state.sequence;
  const int64_t known = std::min(state.num_computed_tokens, sequence.num_tokens());
  if ((state.num_filed_blocks + 1) * config.block_size > known) return;
  const int64_t num_full = known / config.block_size;
  const std::string& salt = sequence.request()->cache_salt;
  cache.extend_hashes(sequence.tokens(), salt, state.block_hashes);
  const auto block_size = static_cast<size_t>(config.block_size);
  std::vector<int32_t> scratch;
  for (int64_t& i = state.num_filed_blocks; i < num_full; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t block_id = state.blocks[at].id();
    const auto parent = i == 0 ? std::nullopt : std::optional<int32_t>(state.blocks[at - 1].id());
    const auto tokens = sequence.tokens().slice(at * block_size, block_size, scratch);
    cache.insert(block_id, parent, tokens, salt, state.block_hashes[at]);
    pool.mark_cached(block_id);
  }
}

Scheduler::Impl::ClientQueue& Scheduler::Impl::client_of(const Request& request) {
  std::unique_ptr<ClientQueue>& client = clients[request.client];
  if (client == nullptr) {
    client = std::make_unique<ClientQueue>();
    client->id = request.client;
    client->joined = next_client++;
    by_use.push_back(client.get());
  }
  client->set_weight(request.client_weight, config.max_num_batched_tokens);
  if (!client->has_prompts()) client->begins = true;
  return *client;
}

void Scheduler::Impl::preempt_newest(ClientQueue& client) {
  ScheduledState& state = *client.running.back();
  client.running.pop_back();
  insert_in_order(client.waiting, &state);
  stop_running(state);
  client.gave_up_sequence = true;
  ++state.num_preemptions;
  ++totals.num_preemptions;
}

void Scheduler::Impl::stop_running(ScheduledState& state) {
  state.client.num_blocks -= std::ssize(state.blocks);
  // Backwards, so that in the free list the end of a prefix is taken before its beginning.
  while (!state.blocks.empty()) state.blocks.pop_back();
  state.num_filed_blocks = 0;
  state.num_computed_tokens = 0;
  state.drafts.clear();
  if (!std::exchange(state.running, false)) return;
  count_stopped(state);
  removed.push_back(state.sequence.id());
}

void Scheduler::Impl::count_running(ScheduledState& state) {
  ++num_running;
  const uint64_t lora_id = state.sequence.request()->lora_id;
  if (lora_id == 0) return;
  ++running_loras[lora_id];
  state.client.num_unused_lora_turns = 0;
  end_lora_wait(state);
  for (const auto& [arrival, waiter] : lora_waiters) {
    if (arrival > state.arrival) break;
    // One that none may overtake any more comes before all others of which that holds.
    if (++waiter->num_lora_overtakes == kMaxLoraOvertakes) {
      lora_turn = std::min(lora_turn.value_or(arrival), arrival);
    }
  }
}

void Scheduler::Impl::count_stopped(const ScheduledState& state) {
  --num_running;
  const auto count = running_loras.find(state.sequence.request()->lora_id);
  if (count != running_loras.end() && --count->second == 0) running_loras.erase(count);
}

void Scheduler::Impl::begin_lora_wait(ScheduledState& state) {
  if (std::exchange(state.waits_for_lora, true)) return;
  state.num_lora_overtakes = 0;
  lora_waiters.emplace(state.arrival, &state);
  ++totals.num_lora_waits;
}

void Scheduler::Impl::end_lora_wait(ScheduledState& state) {
  if (!std::exchange(state.waits_for_lora, false)) return;
  lora_waiters.erase(state.arrival);
  if (lora_turn == state.arrival) find_lora_turn();
}

void Scheduler::Impl::find_lora_turn() {
  const auto first = std::ranges::find_if(lora_waiters, [](const auto& waiter) {
    return waiter.second->num_lora_overtakes >= kMaxLoraOvertakes;
  });
  lora_turn = first == lora_waiters.end() ? std::nullopt : std::optional(first->first);
}

// All of its client's begin to count anew: or each of them could hold others up in turn.
void Scheduler::Impl::count_unused_lora_turn() {
  ClientQueue& client = lora_waiters.at(*lora_turn)->client;
  if (++client.num_unused_lora_turns < kMaxUnusedLoraTurns) return;
  client.num_unused_lora_turns = 0;
  for (ScheduledState* state : client.waiting) state->num_lora_overtakes = 0;
  find_lora_turn();
}

bool Scheduler::Impl::may_begin(ScheduledState& state) {
  const uint64_t lora_id = state.sequence.request()->lora_id;
  if (lora_id == 0 || config.max_loras == 0) return true;
  const bool is_in_turn = !lora_turn || state.arrival <= *lora_turn;
  if (has_lora_room(lora_id) && is_in_turn) return true;
  begin_lora_wait(state);
  return false;
}

void Scheduler::Impl::end(ScheduledState& state, FinishReason reason) {
  ClientQueue& client = state.client;
  state.running ? std::erase(client.running, &state) : std::erase(client.waiting, &state);
  end_lora_wait(state);
  stop_running(state);
  ++totals.num_finished[static_cast<size_t>(reason)];
  states.erase(state.sequence.id());
  if (!client.empty()) return;
  std::erase(by_use, &client);
  clients.erase(client.id);
}

void Scheduler::Impl::take_tokens(ScheduledState& state, SequenceOutput& output,
                                  SequenceUpdate& update) const {
  for (const int32_t token_id : output.token_ids) {
    update.token_ids.push_back(token_id);
    update.end = state.sequence.append(token_id, config.eos_token_ids, config.max_model_len);
    if (update.end) break;
  }
  update.logprobs = std::move(output.logprobs);
  if (update.logprobs.size() > update.token_ids.size()) {
    update.logprobs.resize(update.token_ids.size());
  }
}

std::optional<SequenceUpdate> Scheduler::Impl::take_output(ScheduledState& state,
                                                           const InFlightChunk& chunk,
                                                           SequenceOutput output) {
  SequenceUpdate update;
  update.id = chunk.id;
  update.num_cached_tokens = state.num_cached_tokens.value_or(0);
  update.num_preemptions = state.num_preemptions;
  // After a preemption, chunks bring again what was delivered before.
  const int64_t num_known = state.num_prompt_logprobs - chunk.start;
  for (int64_t i = std::max<int64_t>(num_known, 0); i < std::ssize(output.prompt_logprobs); ++i) {
    update.prompt_logprobs.push_back(std::move(output.prompt_logprobs[static_cast<size_t>(i)]));
    ++state.num_prompt_logprobs;
  }
  if (chunk.most_tokens > 0) {
    state.num_placeholders -= chunk.most_tokens;
    if (chunk.most_tokens > 1) state.verifies = false;
    // Unless it was preempted: then nothing of it counts as computed.
    if (state.running) {
      state.num_computed_tokens -= chunk.most_tokens - std::ssize(output.token_ids);
    }
    take_tokens(state, output, update);
    if (state.running) file_full_blocks(state);
    if (update.end) end(state, update.end->reason);
  }
  if (update.token_ids.empty() && update.prompt_logprobs.empty()) return std::nullopt;
  return update;
}

void Scheduler::Impl::drop_void(const InFlightStep& step, bool failed) {
  for (const InFlightChunk& chunk : step.chunks) {
    const auto it = states.find(chunk.id);
    if (it == states.end()) continue;
    it->second->num_placeholders -= chunk.most_tokens;
    if (chunk.most_tokens > 1) it->second->verifies = false;
  }
  if (!failed) return;
  ++num_failed_steps;
  for (ClientQueue* client : by_use) {
    while (!client->running.empty()) preempt_newest(*client);
  }
  for (int32_t id = 0; id < pool.num_blocks(); ++id) {
    if (!pool.is_cached(id)) continue;
    cache.erase(id);
    pool.mark_empty(id);
  }
}

int64_t stage_chunk(const SchedulerConfig& config, int64_t num_pending) {
  if (config.num_stages == 1) return std::numeric_limits<int64_t>::max();
  const int64_t num_stages = config.num_stages;
  const int64_t least = config.least_stage_chunk;
  const int64_t most = std::max(least, config.max_num_batched_tokens / (2 * num_stages));
  return std::clamp(ceil_div(num_pending, kStageChunks * num_stages), least, most);
}

Scheduler::Scheduler(SchedulerConfig config) {
  check(config.max_num_batched_tokens >= 1, "a step has a budget");
  check(config.max_num_seqs >= 1, "at least one sequence runs");
  check(config.max_model_len >= 2, "a sequence has room for a prompt and a token");
  check(config.block_size >= 1, "a block holds at least one token");
  check(config.num_stages >= 1 && config.least_stage_chunk >= 1, "a model has a stage");
  check(config.num_blocks >= (config.max_model_len - 1) / config.block_size + 1,
        "a sequence of max_model_len fits the cache");
  impl_ = std::make_unique<Impl>(std::move(config));
}

Scheduler::~Scheduler() = default;

void Scheduler::add(Sequence sequence) {
  const SequenceId id = sequence.id();
  const Request& request = *sequence.request();
  check(request.num_prompt_tokens() < impl_->config.max_model_len,
        "the prompt leaves room for a token");
  check(request.client_weight >= 1 && request.client_weight <= kMaxClientWeight,
        "a client's weight is in its range");
  check(!impl_->states.contains(id), "the id of a sequence is new");
  Impl::ClientQueue& client = impl_->client_of(request);
  auto state = std::make_unique<Impl::ScheduledState>(std::move(sequence), impl_->next_arrival++,
                                                      client, impl_->config.max_model_len);
  insert_in_order(client.waiting, state.get());
  impl_->states.emplace(id, std::move(state));
}

void Scheduler::finish(SequenceId id, FinishReason reason) {
  const auto it = impl_->states.find(id);
  if (it != impl_->states.end()) impl_->end(*it->second, reason);
}

void Scheduler::propose(SequenceId id, std::vector<int32_t> draft_token_ids) {
  check(draft_token_ids.size() <= kMaxDraftTokens, "no more drafts than a step can bring");
  const auto it = impl_->states.find(id);
  if (it != impl_->states.end()) it->second->drafts = std::move(draft_token_ids);
}

int64_t Scheduler::num_preemptions(SequenceId id) const {
  const auto it = impl_->states.find(id);
  return it == impl_->states.end() ? 0 : it->second->num_preemptions;
}

int64_t Scheduler::num_awaited_tokens(SequenceId id) const {
  const auto it = impl_->states.find(id);
  return it == impl_->states.end() ? 0 : it->second->num_placeholders;
}

bool Scheduler::runs_lora(uint64_t lora_id) const {
  return impl_->running_loras.contains(lora_id);
}

bool Scheduler::has_unfinished() const {
  return !impl_->states.empty();
}

std::vector<SequenceUpdate> Scheduler::process(StepOutput output) {
  Impl& impl = *impl_;
  check(!impl.in_flight.empty() && impl.in_flight.front().step == output.step,
        "results come in the order of steps");
  const Impl::InFlightStep step = std::move(impl.in_flight.front());
  impl.in_flight.pop_front();
  check(step.chunks.size() == output.sequences.size(), "every chunk has a result");
  if (output.is_void) {
    impl.drop_void(step, !output.failure.empty());
    return {};
  }
  std::vector<SequenceUpdate> updates;
  for (size_t i = 0; i < step.chunks.size(); ++i) {
    const Impl::InFlightChunk& chunk = step.chunks[i];
    check(chunk.id == output.sequences[i].id, "results are in the batch's order");
    const int64_t num_tokens = std::ssize(output.sequences[i].token_ids);
    check(num_tokens <= chunk.most_tokens && (num_tokens > 0) == (chunk.most_tokens > 0),
          "a chunk that samples has a token, and one more for each of its drafts at most");
    const auto it = impl.states.find(chunk.id);
    if (it == impl.states.end()) continue;
    if (auto update = impl.take_output(*it->second, chunk, std::move(output.sequences[i]))) {
      updates.push_back(std::move(*update));
    }
  }
  return updates;
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = impl_->totals;
  stats.num_running = impl_->num_running;
  stats.num_waiting = std::ssize(impl_->states) - impl_->num_running;
  for (const auto& [id, client] : impl_->clients) {
    stats.num_decoding += std::ranges::count_if(
        client->running, [](const Impl::ScheduledState* s) { return !s->is_prefilling(); });
  }
  stats.num_in_flight = std::ssize(impl_->in_flight);
  stats.num_running_loras = std::ssize(impl_->running_loras);
  stats.num_blocks = impl_->pool.num_blocks();
  stats.num_used_blocks = impl_->pool.num_blocks() - impl_->pool.num_free();
  return stats;
}

void Scheduler::check_integrity() const {
  const Impl& impl = *impl_;
  impl.check_queues();
  std::vector<int32_t> held(static_cast<size_t>(impl.pool.num_blocks()));
  for (const auto& [id, state] : impl.states) impl.check_blocks(*state, held);
  impl.pool.check_integrity(held);
  impl.cache.check_integrity();
  int64_t num_cached = 0;
  for (int32_t id = 0; id < impl.pool.num_blocks(); ++id) {
    check(impl.pool.is_cached(id) == impl.cache.contains(id), "pool and cache agree on a block");
    if (impl.pool.is_cached(id)) ++num_cached;
  }
  check(num_cached == impl.cache.num_blocks(), "every cached block exists");
}

void Scheduler::Impl::check_queues() const {
  int64_t num_queued = 0;
  int64_t running_in_all = 0;
  for (const auto& [id, client] : clients) {
    check(client->id == id, "clients are kept by their id");
    check_client(*client);
    num_queued += std::ssize(client->running) + std::ssize(client->waiting);
    running_in_all += std::ssize(client->running);
  }
  check(num_queued == std::ssize(states), "every sequence is in one queue");
  check(by_use.size() == clients.size(), "every client has a place in the order");
  check(running_in_all == num_running, "running sequences are counted");
  check(num_running <= config.max_num_seqs, "no more sequences run than may");
  check_loras();

  std::unordered_map<SequenceId, int64_t> most_tokens;
  for (const InFlightStep& step : in_flight) {
    for (const InFlightChunk& chunk : step.chunks) most_tokens[chunk.id] += chunk.most_tokens;
  }
  for (const auto& [id, state] : states) {
    check(state->sequence.id() == id, "sequences are kept by their id");
    const auto it = most_tokens.find(id);
    check(state->num_placeholders == (it == most_tokens.end() ? 0 : it->second),
          "placeholders are what steps may sample");
  }
}

void Scheduler::Impl::check_loras() const {
  std::unordered_map<uint64_t, int64_t> counts;
  int64_t num_waiting = 0;
  std::optional<uint64_t> turn;
  for (const auto& [id, state] : states) {
    const uint64_t lora_id = state->sequence.request()->lora_id;
    if (state->running && lora_id != 0) ++counts[lora_id];
    if (!state->waits_for_lora) continue;
    ++num_waiting;
    check(!state->running && lora_waiters.contains(state->arrival),
          "sequences that wait for their adapters are known");
    if (state->num_lora_overtakes < kMaxLoraOvertakes) continue;
    turn = std::min(turn.value_or(state->arrival), state->arrival);
  }
  check(num_waiting == std::ssize(lora_waiters), "only waiting sequences wait for adapters");
  check(turn == lora_turn, "the first that was overtaken often has its turn");
  check(counts == running_loras, "running sequences are counted by adapter");
  check(config.max_loras == 0 || std::ssize(running_loras) <= config.max_loras,
        "no more adapters run than may");
}

void Scheduler::Impl::check_client(const ClientQueue& client) const {
  check(!client.empty(), "a client is known while it has sequences");
  int64_t num_blocks = 0;
  for (const ScheduledState* state : client.running) {
    check(state->running, "a running sequence runs");
    num_blocks += std::ssize(state->blocks);
  }
  for (const ScheduledState* state : client.waiting) {
    check(!state->running, "a waiting sequence waits");
  }
  check(num_blocks == client.num_blocks, "a client's blocks are counted");
  const auto in_order = [&client](const auto& sequences) {
    for (const ScheduledState* state : sequences) {
      check(&state->client == &client, "a sequence is with its client");
    }
    return std::ranges::is_sorted(sequences, goes_before);
  };
  check(in_order(client.running) && in_order(client.waiting),
        "queues are in the order of priority, then arrival");
  if (client.waiting.empty()) return;
  const auto first = std::ranges::find(client.waiting, false, &ScheduledState::waits_for_lora);
  if (first == client.waiting.end()) return;
  const ScheduledState* next = *first;
  for (const ScheduledState* state : client.running) {
    if (state->sequence.request()->priority == next->sequence.request()->priority) {
      check(goes_before(state, next), "none overtakes another of its client and priority");
    }
  }
}

void Scheduler::Impl::check_blocks(const ScheduledState& state, std::vector<int32_t>& held) const {
  for (const BlockRef& block : state.blocks) ++held[static_cast<size_t>(block.id())];
  check(state.running == !state.blocks.empty(), "a sequence has blocks if it runs");
  check(state.num_computed_tokens <= state.num_tokens(), "only tokens are computed");
  check(state.num_computed_tokens <= std::ssize(state.blocks) * config.block_size,
        "computed tokens have a slot");
  check(state.num_filed_blocks * config.block_size <= state.sequence.num_tokens(),
        "only blocks of known tokens are filed");
  std::vector<int32_t> scratch;
  for (int64_t i = 0; i < state.num_filed_blocks; ++i) {
    const auto at = static_cast<size_t>(i);
    const auto parent = i == 0 ? std::nullopt : std::optional<int32_t>(state.blocks[at - 1].id());
    const auto size = static_cast<size_t>(config.block_size);
    cache.check_filed(state.blocks[at].id(), parent,
                      state.sequence.tokens().slice(at * size, size, scratch),
                      state.sequence.request()->cache_salt);
  }
}

}  // namespace quire
