// Scheduler::schedule(): how a step is made.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "scheduler/scheduler_impl.h"

namespace quire {

using scheduler_internal::Claim;
using scheduler_internal::ClientQueue;
using scheduler_internal::divide;
using scheduler_internal::insert_in_order;
using scheduler_internal::ScheduledState;
using scheduler_internal::token_cost;
using scheduler_internal::VirtualTime;

namespace {

// A step's prompt tokens are divided between so many clients that each gets about this many at
// least: shorter chunks cost more than they are worth. The others are next.
constexpr int64_t kLeastGrant = 64;

// Whether `a` holds less than `b` of something, for its weight.
bool holds_less(int64_t a, int32_t weight_a, int64_t b, int32_t weight_b) {
  return a * weight_b < b * weight_a;
}

}  // namespace

class Scheduler::StepMaker {
 public:
  StepMaker(Impl& scheduler, int64_t max_prefill_tokens, int64_t prompt_logprobs_cost)
      : s_(scheduler),
        prompt_logprobs_cost_(prompt_logprobs_cost),
        prefill_left_(max_prefill_tokens),
        drafts_left_(scheduler.config.max_drafts),
        order_by_use_(2 * s_.num_running > s_.config.max_num_batched_tokens) {}

  ScheduledBatch make();

 private:
  void begin();
  // Puts clients in their places for this step: what each has used is kept within bounds, and those
  // that begin are level with the others.
  void set_virtual_times();
  // Says of each client how many prompt tokens it may take.
  void share_prompt_tokens();
  int64_t claim_of(const ClientQueue& client, int64_t most) const;
  // Where the runner has several stages: how many sequences may decode in this step, and how many
  // tokens of prompts it may have.
  void share_stages();
  // The running sequences of one client, then those of its queue.
  void schedule_client(ClientQueue& client);
  void schedule_running(ClientQueue& client);
  void schedule_waiting(ClientQueue& client);
  bool may_admit(const ClientQueue& client) const {
    return may_admit_ && (may_admit_more_ || client.num_blocks == 0) && !client.gave_up_sequence;
  }
  // More prompt tokens for a client, of those that others left, and its own short prompts.
  void schedule_more(ClientQueue& client);
  // Makes the chunks of its running prompts longer, up to `share` each.
  void grow_running(ClientQueue& client, int64_t share);
  void end();

  int64_t tokens_left() const { return s_.config.max_num_batched_tokens - batch_.num_tokens; }
  // What a token of its prompt counts as, in limits and shares.
  int64_t prompt_token_cost(const ScheduledState& state) const {
    return state.sequence.params().prompt_logprobs ? prompt_logprobs_cost_ : 1;
  }
  // The part of a client's limit that each of its prompts has while all have the same.
  static int64_t share_of(const ClientQueue& client);
  // The length of a sequence's next prefill chunk, or by how much that of this step grows, where it
  // may have tokens for `share` in all.
  int64_t prefill_length(const ScheduledState& state, int64_t share) const;
  // The tokens that a sequence has in this step.
  int64_t num_scheduled(const ScheduledState& state) const {
    return state.chunk_step == batch_.step ? batch_.sequences[state.chunk_index].num_tokens : 0;
  }
  // How many of its drafts a sequence that decodes has room for, once it has a block for its token.
  int64_t num_drafts(const ScheduledState& state) const;
  // The newest token of a running sequence, for which there is a block, and as many of its drafts
  // as have room beside what is for those behind.
  void schedule_decode(ScheduledState& state);
  // Adds a chunk to the batch; the runner has yet to learn of blocks[first_new_block] and on.
  void schedule_chunk(ScheduledState& state, ChunkKind kind, int64_t num_tokens,
                      size_t first_new_block);
  // Makes a chunk of this step longer.
  void grow(ScheduledState& state, int64_t num_tokens);
  void charge(ScheduledState& state, int64_t num_tokens, int64_t cost);
  void charge_prefill(ScheduledState& state, int64_t num_tokens);

  // Has sequences preempted until there is a free block; false if that of `client` at this position
  // was one of them.
  bool free_block(ClientQueue& client, size_t position);
  // Takes blocks for all tokens of a waiting sequence, or none and returns false.
  bool allocate_waiting(ScheduledState& state);
  // Has sequences of others preempted until that many blocks are free; false where that would be
  // unfair.
  bool free_blocks(const ClientQueue& client, int64_t num_blocks, const std::vector<int32_t>& hits);
  int64_t num_blocks_short(int64_t num_blocks, const std::vector<int32_t>& hits) const;
  bool is_full() const { return s_.num_running == s_.config.max_num_seqs; }
  // The client that gives a place up to this one; null where none has so many more.
  ClientQueue* giver_of_place(const ClientQueue& client);
  void preempt(ClientQueue& client);

  Impl& s_;
  int64_t prompt_logprobs_cost_;
  ScheduledBatch batch_;
  int64_t work_ = 0;                        // of the batch: its tokens, at what each counts
  std::vector<ClientQueue*> order_;         // in which clients have their turns
  std::vector<ClientQueue*> with_prompts_;  // by virtual time
  size_t turn_ = 0;                         // in order_
  int64_t prefill_left_;
  int64_t drafts_left_;
  int64_t decodes_left_ = std::numeric_limits<int64_t>::max();  // sequences
  // Almost no step has room for prompts beside so many sequences: then whoever used least goes
  // first, and nothing is kept for those behind.
  bool order_by_use_;
  const ClientQueue* refused_place_ = nullptr;  // the last for which there was no giver
  bool may_admit_ = true;
  bool may_admit_more_ = true;  // of clients that hold blocks
  bool may_preempt_ = true;
  // Impl::lora_turn when the step began, if that sequence's adapter had room.
  std::optional<uint64_t> free_lora_turn_;
  // Running sequences that have not had their turn: of the client that has its turn, and of those
  // behind it; and the blocks that the next tokens of all these need.
  int64_t num_own_behind_ = 0;
  int64_t num_others_behind_ = 0;
  int64_t num_blocks_behind_ = 0;
};

ScheduledBatch Scheduler::StepMaker::make() {
  begin();
  if (s_.config.num_stages > 1) share_stages();
  share_prompt_tokens();
  for (turn_ = 0; turn_ < order_.size(); ++turn_) schedule_client(*order_[turn_]);
  may_preempt_ = false;
  for (ClientQueue* client : with_prompts_) schedule_more(*client);
  end();
  return std::move(batch_);
}

// Those that hold the fewest blocks go first, so that it is those that hold the most who give up
// what others need.
void Scheduler::StepMaker::begin() {
  batch_.step = s_.next_step++;
  if (s_.lora_turn && s_.has_lora_room(s_.lora_id_in_turn())) free_lora_turn_ = s_.lora_turn;
  order_.reserve(s_.clients.size());
  for (const auto& [id, client] : s_.clients) {
    client->gave_up_sequence = false;
    client->taken = 0;
    client->num_prompts = std::ssize(client->waiting);
    for (const ScheduledState* state : client->running) {
      if (state->is_prefilling()) ++client->num_prompts;
      if (s_.needs_block(*state)) ++num_blocks_behind_;
    }
    order_.push_back(client.get());
  }
  set_virtual_times();
  num_others_behind_ = s_.num_running;
  const auto by_use = [](const ClientQueue* a, const ClientQueue* b) {
    return std::pair(a->virtual_time, a->joined) < std::pair(b->virtual_time, b->joined);
  };
  std::ranges::sort(order_, by_use);
  std::ranges::copy_if(order_, std::back_inserter(with_prompts_),
                       [](const ClientQueue* client) { return client->num_prompts > 0; });
  if (!with_prompts_.empty()) s_.clock.raise_to(with_prompts_.front()->virtual_time);
  if (!order_by_use_) {
    std::ranges::stable_sort(order_, [](const ClientQueue* a, const ClientQueue* b) {
      return holds_less(a->num_blocks, a->weight, b->num_blocks, b->weight);
    });
  }
}

void Scheduler::StepMaker::set_virtual_times() {
  const VirtualTime level = s_.clock.level();
  VirtualTime start = level;
  for (ClientQueue* client : order_) {
    // What it got while nobody else wanted it, or did not get for want of a place, is forgotten.
    client->virtual_time =
        std::clamp(client->virtual_time, level - token_cost(2 * kLeastGrant, client->weight),
                   level + token_cost(s_.config.max_num_batched_tokens, client->weight));
    if (client->num_prompts > 0 && !client->begins) start = std::min(start, client->virtual_time);
  }
  for (ClientQueue* client : order_) {
    if (std::exchange(client->begins, false)) {
      client->virtual_time = std::max(client->virtual_time, start);
    }
  }
}

void Scheduler::StepMaker::share_stages() {
  int64_t num_decoding = 0;
  int64_t num_ready = 0;  // of these
  int64_t num_pending = 0;
  for (const ClientQueue* client : order_) {
    for (const ScheduledState* state : client->running) {
      if (state->is_prefilling()) {
        num_pending += s_.num_pending_tokens(*state);
        continue;
      }
      ++num_decoding;
      if (s_.num_pending_tokens(*state) > 0) ++num_ready;
    }
    // Where there are so many tokens, the chunk is no longer for more.
    for (const ScheduledState* state : client->waiting) {
      if (num_pending >= s_.config.max_num_batched_tokens) break;
      num_pending += state->sequence.num_tokens();
    }
  }
  prefill_left_ = std::min(prefill_left_, stage_chunk(s_.config, num_pending));
  const int64_t num_stages = s_.config.num_stages;
  const int64_t num_free = std::max<int64_t>(1, num_stages - std::ssize(s_.in_flight));
  decodes_left_ = std::min(ceil_div(num_decoding, num_stages), ceil_div(num_ready, num_free));
}

void Scheduler::StepMaker::share_prompt_tokens() {
  if (with_prompts_.empty()) return;
  // What is left beside the decodes, which every step has room for.
  int64_t total = prefill_left_;
  if (with_prompts_.size() > 1) {
    int64_t num_decoding = 0;
    for (const ClientQueue* client : order_) {
      num_decoding += std::ranges::count_if(
          client->running, [](const ScheduledState* state) { return !state->is_prefilling(); });
    }
    total = std::min(total, order_by_use_ ? tokens_left() : tokens_left() - num_decoding);
  }
  const auto num_claims =
      std::min<size_t>(with_prompts_.size(),
                       static_cast<size_t>(std::max(kMaxSharingPrefills, total / kLeastGrant)));
  const int64_t most = std::min(total, s_.config.max_num_batched_tokens);
  std::vector<Claim> claims;
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

void Scheduler::StepMaker::schedule_client(ClientQueue& client) {
  num_own_behind_ = std::ssize(client.running);
  num_others_behind_ -= num_own_behind_;
  schedule_running(client);
  num_own_behind_ = 0;
  schedule_waiting(client);
}

void Scheduler::StepMaker::schedule_running(ClientQueue& client) {
  for (size_t i = 0; i < client.running.size() && tokens_left() > 0; ++i) {
    ScheduledState& state = *client.running[i];
    --num_own_behind_;
    if (s_.num_pending_tokens(state) == 0) continue;
    if (state.is_prefilling()) {  // it got all its blocks when it was admitted
      const int64_t num_tokens = prefill_length(state, share_of(client));
      if (num_tokens > 0) {
        schedule_chunk(state, ChunkKind::kPrefill, num_tokens, state.blocks.size());
      }
      continue;
    }
    if (decodes_left_ == 0) continue;
    if (s_.needs_block(state)) {
      if (!free_block(client, i)) return;
      --num_blocks_behind_;
    }
    --decodes_left_;
    schedule_decode(state);
  }
}

void Scheduler::StepMaker::schedule_waiting(ClientQueue& client) {
  size_t next = 0;  // those before it wait for their adapters
  while (may_admit(client)) {
    while (next < client.waiting.size() && !s_.may_begin(*client.waiting[next])) ++next;
    if (next == client.waiting.size()) return;
    ScheduledState& state = *client.waiting[next];
    // A preempted sequence is handed over anew with all its tokens, so they must be known.
    if (state.num_placeholders > 0 || prefill_length(state, share_of(client)) <= 0) return;
    if (is_full() && giver_of_place(client) == nullptr) return;
    if (!allocate_waiting(state)) {
      // Or small ones would take the blocks that it waits for. A client that has some already keeps
      // none from those that have none: once it has none itself, its sequence is next.
      (client.num_blocks == 0 ? may_admit_ : may_admit_more_) = false;
      return;
    }
    if (is_full()) preempt(*giver_of_place(client));
    // Only other clients were preempted, so it is where it was.
    client.waiting.erase(client.waiting.begin() + static_cast<std::ptrdiff_t>(next));
    insert_in_order(client.running, &state);
    state.running = true;
    s_.count_running(state);
    const Sequence& sequence = state.sequence;
    batch_.added.push_back(
        {sequence.id(), sequence.request(), sequence.index(), sequence.output_token_ids()});
    schedule_chunk(state, ChunkKind::kPrefill, prefill_length(state, share_of(client)), 0);
  }
}

void Scheduler::StepMaker::schedule_more(ClientQueue& client) {
  if (prefill_left_ <= 0 || tokens_left() <= 0) return;
  client.limit = client.taken + prefill_left_;
  grow_running(client, share_of(client));
  schedule_waiting(client);
  grow_running(client, client.limit);
}

void Scheduler::StepMaker::grow_running(ClientQueue& client, int64_t share) {
  for (ScheduledState* state : client.running) {
    if (!state->is_prefilling()) continue;
    const int64_t num_tokens = prefill_length(*state, share);
    if (num_tokens <= 0) continue;
    if (num_scheduled(*state) > 0) {
      grow(*state, num_tokens);
    } else {
      schedule_chunk(*state, ChunkKind::kPrefill, num_tokens, state->blocks.size());
    }
  }
}

void Scheduler::StepMaker::end() {
  if (free_lora_turn_ && free_lora_turn_ == s_.lora_turn &&
      s_.has_lora_room(s_.lora_id_in_turn())) {
    s_.count_unused_lora_turn();
  }
  int64_t weight = 0;
  for (const ClientQueue* client : with_prompts_.empty() ? order_ : with_prompts_) {
    weight += client->weight;
  }
  if (weight > 0) s_.clock.advance(work_, weight);
  batch_.removed = std::exchange(s_.removed, {});
  auto rest = batch_.sequences.begin();
  for (const ChunkKind kind : {ChunkKind::kDecode, ChunkKind::kVerify}) {
    rest = std::stable_partition(rest, batch_.sequences.end(),
                                 [kind](const ScheduledSequence& s) { return s.kind == kind; });
  }
  if (batch_.empty()) return;
  Impl::InFlightStep step{batch_.step, {}};
  for (const ScheduledSequence& s : batch_.sequences) {
    step.chunks.push_back({s.id, s.num_computed_tokens, s.num_logits_rows()});
  }
  s_.in_flight.push_back(std::move(step));
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

int64_t Scheduler::StepMaker::num_drafts(const ScheduledState& state) const {
  const int64_t budget = tokens_left() - 1 - num_own_behind_ - num_others_behind_;
  const int64_t length =
      state.sequence.max_num_tokens(s_.config.max_model_len) - state.num_tokens() - 1;
  const int64_t num_free = std::max<int64_t>(s_.pool.num_free() - num_blocks_behind_, 0);
  const int64_t slots =
      (std::ssize(state.blocks) + num_free) * s_.config.block_size - state.num_computed_tokens - 1;
  return std::clamp<int64_t>(std::min({budget, drafts_left_, length, slots}), 0,
                             std::ssize(state.drafts));
}

void Scheduler::StepMaker::schedule_decode(ScheduledState& state) {
  const size_t num_blocks = state.blocks.size();
  if (s_.needs_block(state)) state.blocks.push_back(s_.pool.take());
  const int64_t num_tokens = 1 + num_drafts(state);
  while (std::ssize(state.blocks) < s_.blocks_for(state.num_computed_tokens + num_tokens)) {
    state.blocks.push_back(s_.pool.take());
  }
  state.client.num_blocks += std::ssize(state.blocks) - static_cast<int64_t>(num_blocks);
  const ChunkKind kind = num_tokens > 1 ? ChunkKind::kVerify : ChunkKind::kDecode;
  schedule_chunk(state, kind, num_tokens, num_blocks);
  state.drafts.clear();
}

void Scheduler::StepMaker::schedule_chunk(ScheduledState& state, ChunkKind kind, int64_t num_tokens,
                                          size_t first_new_block) {
  ScheduledSequence chunk;
  chunk.id = state.sequence.id();
  chunk.kind = kind;
  chunk.num_computed_tokens = state.num_computed_tokens;
  chunk.num_tokens = num_tokens;
  if (kind == ChunkKind::kVerify) {
    chunk.draft_token_ids = std::exchange(state.drafts, {});
    chunk.draft_token_ids.resize(static_cast<size_t>(num_tokens - 1));
    drafts_left_ -= num_tokens - 1;
  }
  for (size_t i = first_new_block; i < state.blocks.size(); ++i) {
    chunk.new_block_ids.push_back(state.blocks[i].id());
  }
  kind == ChunkKind::kPrefill ? charge_prefill(state, num_tokens) : charge(state, num_tokens, 1);
  chunk.samples = !state.is_prefilling();
  state.num_placeholders += chunk.num_logits_rows();
  s_.file_full_blocks(state);
  state.chunk_step = batch_.step;
  state.chunk_index = batch_.sequences.size();
  batch_.sequences.push_back(std::move(chunk));
}

void Scheduler::StepMaker::grow(ScheduledState& state, int64_t num_tokens) {
  ScheduledSequence& chunk = batch_.sequences[state.chunk_index];
  chunk.num_tokens += num_tokens;
  charge_prefill(state, num_tokens);
  chunk.samples = !state.is_prefilling();
  state.num_placeholders += chunk.num_logits_rows();
  s_.file_full_blocks(state);
}

void Scheduler::StepMaker::charge(ScheduledState& state, int64_t num_tokens, int64_t cost) {
  batch_.num_tokens += num_tokens;
  work_ += num_tokens * cost;
  state.num_computed_tokens += num_tokens;
  state.client.virtual_time += token_cost(num_tokens * cost, state.client.weight);
}

void Scheduler::StepMaker::charge_prefill(ScheduledState& state, int64_t num_tokens) {
  const int64_t cost = prompt_token_cost(state);
  prefill_left_ -= num_tokens * cost;
  state.client.taken += num_tokens * cost;
  charge(state, num_tokens, cost);
}

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

ScheduledBatch Scheduler::schedule(int64_t max_prefill_tokens, int64_t prompt_logprobs_cost) {
  check(max_prefill_tokens >= 1, "a step has room for a prompt token");
  check(prompt_logprobs_cost >= 1, "a token with log-probabilities counts as one at least");
  return StepMaker(*impl_, max_prefill_tokens, prompt_logprobs_cost).make();
}

}  // namespace quire
