#include "scheduler/scheduler.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/scheduled_state.h"

namespace quire {

using scheduler_internal::ScheduledState;

struct Scheduler::Impl {
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
  int64_t num_pending_tokens(const ScheduledState& state) const;
  // How many tokens of prompts a step may still take, and how many of them one sequence.
  struct PrefillBudget {
    int64_t left;
    int64_t share;
  };
  PrefillBudget share_prefill_tokens(int64_t max_prefill_tokens) const;
  // The length of the next chunk without drafts: 0 where nothing is pending or the step is full.
  int64_t chunk_length(const ScheduledState& state, const ScheduledBatch& batch) const;
  // Whether the next token of a running sequence needs a block that it does not have.
  bool needs_block(const ScheduledState& state) const {
    return num_pending_tokens(state) > 0 &&
           std::ssize(state.blocks) < blocks_for(state.num_computed_tokens + 1);
  }
  // What the next tokens of the running sequences behind one take.
  struct Behind {
    int64_t num_tokens = 0;
    int64_t num_blocks = 0;
  };
  // How many of its drafts a sequence that decodes has room for, once it has a block for its token.
  int64_t num_drafts(const ScheduledState& state, const Behind& behind,
                     const ScheduledBatch& batch) const;
  // Adds a chunk to the batch; the runner has yet to learn of blocks[first_new_block] and on.
  void schedule_chunk(ScheduledState& state, ChunkKind kind, int64_t num_tokens,
                      size_t first_new_block, ScheduledBatch& batch);
  // The newest token of a running sequence, for which there is a block, and as many of its drafts
  // as have room beside what is for those behind.
  void schedule_decode(ScheduledState& state, const Behind& behind, ScheduledBatch& batch);
  // False if a sequence had to be preempted.
  bool schedule_running(ScheduledBatch& batch);
  void schedule_waiting(ScheduledBatch& batch);
  // Takes blocks for all tokens of a waiting sequence, or none and returns false.
  bool allocate_waiting(ScheduledState& state);
  // Whether the prefix cache may serve it: logprobs of the prompt come only from computing it.
  bool uses_prefix_cache(const Sequence& sequence) const {
    return config.enable_prefix_caching && !sequence.params().prompt_logprobs;
  }
  std::vector<int32_t> lookup_prefix(ScheduledState& state) const;
  void file_full_blocks(ScheduledState& state);
  void preempt_last();
  void stop_running(ScheduledState& state);
  void remove_from_queues(ScheduledState& state);
  void end(ScheduledState& state, FinishReason reason);
  // Appends what came to the sequence, up to its end, and says so in the update.
  void take_tokens(ScheduledState& state, SequenceOutput& output, SequenceUpdate& update) const;
  std::optional<SequenceUpdate> take_output(ScheduledState& state, const InFlightChunk& chunk,
                                            SequenceOutput output);

  void check_queues() const;
  void check_blocks(const ScheduledState& state, std::vector<int32_t>& held) const;

  SchedulerConfig config;
  PrefixCache cache;
  BlockPool pool;
  std::unordered_map<SequenceId, std::unique_ptr<ScheduledState>> states;
  // In order of arrival, and all of `running` arrived before all of `waiting`.
  std::vector<ScheduledState*> running;
  std::deque<ScheduledState*> waiting;
  std::deque<InFlightStep> in_flight;
  std::vector<SequenceId> removed;  // since the last batch
  uint64_t next_arrival = 0;
  uint64_t next_step = 0;
  PrefillBudget prefill{0, 0};  // of the step that is being made
  SchedulerStats totals;        // the fields that count since the start
};

int64_t Scheduler::Impl::num_pending_tokens(const ScheduledState& state) const {
  if (state.num_tokens() >= state.sequence.max_num_tokens(config.max_model_len)) return 0;
  return state.num_tokens() - state.num_computed_tokens;
}

Scheduler::Impl::PrefillBudget Scheduler::Impl::share_prefill_tokens(
    int64_t max_prefill_tokens) const {
  int64_t num_prompts = std::ssize(waiting);
  for (const ScheduledState* state : running) {
    if (state->is_prefilling()) ++num_prompts;
  }
  num_prompts = std::clamp<int64_t>(num_prompts, 1, kMaxSharingPrefills);
  // Rounded up, so that the parts make the whole.
  return {.left = max_prefill_tokens, .share = (max_prefill_tokens - 1) / num_prompts + 1};
}

int64_t Scheduler::Impl::chunk_length(const ScheduledState& state,
                                      const ScheduledBatch& batch) const {
  const int64_t pending =
      std::min(num_pending_tokens(state), config.max_num_batched_tokens - batch.num_tokens);
  return state.is_prefilling() ? std::min({pending, prefill.left, prefill.share}) : pending;
}

int64_t Scheduler::Impl::num_drafts(const ScheduledState& state, const Behind& behind,
                                    const ScheduledBatch& batch) const {
  const int64_t budget = config.max_num_batched_tokens - batch.num_tokens - 1 - behind.num_tokens;
  const int64_t length =
      state.sequence.max_num_tokens(config.max_model_len) - state.num_tokens() - 1;
  const int64_t num_free = std::max<int64_t>(pool.num_free() - behind.num_blocks, 0);
  const int64_t slots =
      (std::ssize(state.blocks) + num_free) * config.block_size - state.num_computed_tokens - 1;
  return std::clamp<int64_t>(std::min({budget, length, slots}), 0, std::ssize(state.drafts));
}

void Scheduler::Impl::schedule_chunk(ScheduledState& state, ChunkKind kind, int64_t num_tokens,
                                     size_t first_new_block, ScheduledBatch& batch) {
  ScheduledSequence chunk;
  chunk.id = state.sequence.id();
  chunk.kind = kind;
  chunk.num_computed_tokens = state.num_computed_tokens;
  chunk.num_tokens = num_tokens;
  if (kind == ChunkKind::kPrefill) prefill.left -= num_tokens;
  if (kind == ChunkKind::kVerify) {
    chunk.draft_token_ids = std::exchange(state.drafts, {});
    chunk.draft_token_ids.resize(static_cast<size_t>(num_tokens - 1));
  }
  for (size_t i = first_new_block; i < state.blocks.size(); ++i) {
    chunk.new_block_ids.push_back(state.blocks[i].id());
  }
  batch.num_tokens += chunk.num_tokens;
  state.num_computed_tokens += chunk.num_tokens;
  chunk.samples = !state.is_prefilling();
  state.num_placeholders += chunk.num_logits_rows();
  file_full_blocks(state);
  batch.sequences.push_back(std::move(chunk));
}

bool Scheduler::Impl::schedule_running(ScheduledBatch& batch) {
  bool preempted = false;
  // Of running[i] and on; below, of those behind it.
  int64_t num_blocks_needed = std::ranges::count_if(
      running, [this](const ScheduledState* state) { return needs_block(*state); });
  for (size_t i = 0; i < running.size() && batch.num_tokens < config.max_num_batched_tokens; ++i) {
    ScheduledState& state = *running[i];
    const int64_t num_tokens = chunk_length(state, batch);
    if (num_tokens == 0) continue;
    if (state.is_prefilling()) {  // it got all its blocks when it was admitted
      schedule_chunk(state, ChunkKind::kPrefill, num_tokens, state.blocks.size(), batch);
      continue;
    }
    if (needs_block(state)) {
      while (pool.num_free() == 0 && i < running.size()) {
        if (i + 1 < running.size() && needs_block(*running.back())) --num_blocks_needed;
        preempt_last();
        preempted = true;
      }
      if (i == running.size()) break;
      --num_blocks_needed;
    }
    schedule_decode(state, {std::ssize(running) - static_cast<int64_t>(i) - 1, num_blocks_needed},
                    batch);
  }
  return !preempted;
}

void Scheduler::Impl::schedule_decode(ScheduledState& state, const Behind& behind,
                                      ScheduledBatch& batch) {
  const size_t num_blocks = state.blocks.size();
  if (needs_block(state)) state.blocks.push_back(pool.take());
  const int64_t num_tokens = 1 + num_drafts(state, behind, batch);
  while (std::ssize(state.blocks) < blocks_for(state.num_computed_tokens + num_tokens)) {
    state.blocks.push_back(pool.take());
  }
  const ChunkKind kind = num_tokens > 1 ? ChunkKind::kVerify : ChunkKind::kDecode;
  schedule_chunk(state, kind, num_tokens, num_blocks, batch);
  state.drafts.clear();
}

void Scheduler::Impl::schedule_waiting(ScheduledBatch& batch) {
  while (!waiting.empty() && batch.num_tokens < config.max_num_batched_tokens && prefill.left > 0 &&
         std::ssize(running) < config.max_num_seqs) {
    ScheduledState& state = *waiting.front();
    // A preempted sequence is handed over anew with all its tokens, so they must be known.
    if (state.num_placeholders > 0 || !allocate_waiting(state)) return;
    waiting.pop_front();
    running.push_back(&state);
    state.running = true;
    const Sequence& sequence = state.sequence;
    batch.added.push_back(
        {sequence.id(), sequence.request(), sequence.index(), sequence.output_token_ids()});
    schedule_chunk(state, ChunkKind::kPrefill, chunk_length(state, batch), 0, batch);
  }
}

bool Scheduler::Impl::allocate_waiting(ScheduledState& state) {
  const std::vector<int32_t> hits = lookup_prefix(state);
  const auto num_hits = static_cast<int64_t>(hits.size());
  const int64_t num_new = blocks_for(state.sequence.num_tokens()) - num_hits;
  const int64_t num_free_hits =
      std::ranges::count_if(hits, [this](int32_t id) { return pool.ref_count(id) == 0; });
  if (num_new + num_free_hits > pool.num_free()) return false;

  for (const int32_t id : hits) state.blocks.push_back(pool.share(id));
  for (int64_t i = 0; i < num_new; ++i) state.blocks.push_back(pool.take());
  state.num_filed_blocks = num_hits;
  state.num_computed_tokens = num_hits * config.block_size;
  state.num_prefill_tokens = state.sequence.num_tokens();
  if (!state.num_cached_tokens) {
    state.num_cached_tokens = state.num_computed_tokens;
    if (uses_prefix_cache(state.sequence)) {
      totals.prefix_cache_queried_tokens += state.sequence.num_tokens();
      totals.prefix_cache_hit_tokens += state.num_computed_tokens;
    }
  }
  return true;
}

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
  const int64_t num_full = known / config.block_size;
  if (state.num_filed_blocks >= num_full) return;
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

void Scheduler::Impl::preempt_last() {
  ScheduledState& state = *running.back();
  running.pop_back();
  waiting.push_front(&state);
  stop_running(state);
  ++totals.num_preemptions;
}

void Scheduler::Impl::stop_running(ScheduledState& state) {
  // Backwards, so that in the free list the end of a prefix is taken before its beginning.
  while (!state.blocks.empty()) state.blocks.pop_back();
  state.num_filed_blocks = 0;
  state.num_computed_tokens = 0;
  state.drafts.clear();
  if (std::exchange(state.running, false)) removed.push_back(state.sequence.id());
}

void Scheduler::Impl::remove_from_queues(ScheduledState& state) {
  if (state.running) {
    std::erase(running, &state);
  } else {
    std::erase(waiting, &state);
  }
}

void Scheduler::Impl::end(ScheduledState& state, FinishReason reason) {
  remove_from_queues(state);
  stop_running(state);
  ++totals.num_finished[static_cast<size_t>(reason)];
  states.erase(state.sequence.id());
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
  // After a preemption, chunks bring again what was delivered before.
  const int64_t num_known = state.num_prompt_logprobs - chunk.start;
  for (int64_t i = std::max<int64_t>(num_known, 0); i < std::ssize(output.prompt_logprobs); ++i) {
    update.prompt_logprobs.push_back(std::move(output.prompt_logprobs[static_cast<size_t>(i)]));
    ++state.num_prompt_logprobs;
  }
  if (chunk.most_tokens > 0) {
    state.num_placeholders -= chunk.most_tokens;
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

Scheduler::Scheduler(SchedulerConfig config) {
  check(config.max_num_batched_tokens >= 1, "a step has a budget");
  check(config.max_num_seqs >= 1, "at least one sequence runs");
  check(config.max_model_len >= 2, "a sequence has room for a prompt and a token");
  check(config.block_size >= 1, "a block holds at least one token");
  check(config.num_blocks >= (config.max_model_len - 1) / config.block_size + 1,
        "a sequence of max_model_len fits the cache");
  impl_ = std::make_unique<Impl>(std::move(config));
}

Scheduler::~Scheduler() = default;

void Scheduler::add(Sequence sequence) {
  const SequenceId id = sequence.id();
  auto state = std::make_unique<ScheduledState>(std::move(sequence), impl_->next_arrival++);
  check(state->sequence.num_prompt_tokens() < impl_->config.max_model_len,
        "the prompt leaves room for a token");
  impl_->waiting.push_back(state.get());
  check(impl_->states.emplace(id, std::move(state)).second, "the id of a sequence is new");
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

bool Scheduler::has_unfinished() const {
  return !impl_->states.empty();
}

ScheduledBatch Scheduler::schedule(int64_t max_prefill_tokens) {
  check(max_prefill_tokens >= 1, "a step has room for a prompt token");
  Impl& impl = *impl_;
  impl.prefill = impl.share_prefill_tokens(max_prefill_tokens);
  ScheduledBatch batch;
  batch.step = impl.next_step++;
  // Where blocks ran out, admitting another would only have it preempted next.
  if (impl.schedule_running(batch)) impl.schedule_waiting(batch);
  batch.removed = std::exchange(impl.removed, {});
  auto rest = batch.sequences.begin();
  for (const ChunkKind kind : {ChunkKind::kDecode, ChunkKind::kVerify}) {
    rest = std::stable_partition(rest, batch.sequences.end(),
                                 [kind](const ScheduledSequence& s) { return s.kind == kind; });
  }
  if (!batch.empty()) {
    Impl::InFlightStep step{batch.step, {}};
    for (const ScheduledSequence& s : batch.sequences) {
      step.chunks.push_back({s.id, s.num_computed_tokens, s.num_logits_rows()});
    }
    impl.in_flight.push_back(std::move(step));
  }
  return batch;
}

std::vector<SequenceUpdate> Scheduler::process(StepOutput output) {
  Impl& impl = *impl_;
  check(!impl.in_flight.empty() && impl.in_flight.front().step == output.step,
        "results come in the order of steps");
  const Impl::InFlightStep step = std::move(impl.in_flight.front());
  impl.in_flight.pop_front();
  check(step.chunks.size() == output.sequences.size(), "every chunk has a result");
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
  stats.num_running = std::ssize(impl_->running);
  stats.num_decoding = std::ranges::count_if(
      impl_->running, [](const ScheduledState* state) { return !state->is_prefilling(); });
  stats.num_waiting = std::ssize(impl_->waiting);
  stats.num_in_flight = std::ssize(impl_->in_flight);
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
  check(running.size() + waiting.size() == states.size(), "every sequence is in one queue");
  check(std::ssize(running) <= config.max_num_seqs, "no more sequences run than may");
  std::vector<const ScheduledState*> all(running.begin(), running.end());
  all.insert(all.end(), waiting.begin(), waiting.end());
  check(std::ranges::is_sorted(all, {}, &ScheduledState::arrival),
        "queues are in the order of arrival");
  for (const ScheduledState* state : running) check(state->running, "a running sequence runs");
  for (const ScheduledState* state : waiting) check(!state->running, "a waiting sequence waits");

  std::unordered_map<SequenceId, int64_t> most_tokens;
  for (const InFlightStep& step : in_flight) {
    for (const InFlightChunk& chunk : step.chunks) most_tokens[chunk.id] += chunk.most_tokens;
  }
  for (const auto& [id, state] : states) {
    check(state->sequence.id() == id, "sequences are kept by their id");
    check(state->num_placeholders == most_tokens[id], "placeholders are what steps may sample");
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
