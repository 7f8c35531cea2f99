// Scheduler::schedule(): the turns of the clients, and of the sequences of each.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "scheduler/step_maker.h"

namespace quire {

using scheduler_internal::ClientQueue;
using scheduler_internal::holds_less;
using scheduler_internal::insert_in_order;

namespace {

bool used_less(const ClientQueue* a, const ClientQueue* b) {
  if (a->virtual_time != b->virtual_time) return a->virtual_time < b->virtual_time;
  return a->joined < b->joined;
}

}  // namespace

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

void Scheduler::StepMaker::begin() {
  batch_.step = s_.next_step++;
  batch_.num_failed_steps = s_.num_failed_steps;
  if (s_.lora_turn && s_.has_lora_room(s_.lora_id_in_turn())) free_lora_turn_ = s_.lora_turn;
  for (ClientQueue* client : s_.by_use) look_at(*client);
  num_others_behind_ = s_.num_running;
  batch_.sequences.reserve(static_cast<size_t>(s_.num_running));
  set_virtual_times();
  put_in_order();
}

void Scheduler::StepMaker::look_at(ClientQueue& client) {
  client.gave_up_sequence = false;
  client.taken = 0;
  client.num_prompts = std::ssize(client.waiting);
  if (!client.waiting.empty()) is_contested_ = true;
  for (const ScheduledState* state : client.running) {
    ++(state->is_prefilling() ? client.num_prompts : num_decoding_);
    if (s_.needs_block(*state)) ++num_blocks_behind_;
  }
}

void Scheduler::StepMaker::put_in_order() {
  // From step to step little changes.
  if (!std::ranges::is_sorted(s_.by_use, used_less)) std::ranges::sort(s_.by_use, used_less);
  order_ = s_.by_use;
  for (ClientQueue* client : order_) {
    if (client->num_prompts > 0) with_prompts_.push_back(client);
  }
  if (!with_prompts_.empty()) s_.clock.raise_to(with_prompts_.front()->virtual_time);
  if (s_.pool.num_free() < num_blocks_behind_) is_contested_ = true;
  if (order_by_use_ || !is_contested_) return;
  // Those that hold the fewest blocks go first, so that it is those that hold the most who give up
  // what others need. Most of many hold none.
  const auto first_holder =
      std::stable_partition(order_.begin(), order_.end(),
                            [](const ClientQueue* client) { return client->num_blocks == 0; });
  std::stable_sort(first_holder, order_.end(), [](const ClientQueue* a, const ClientQueue* b) {
    return holds_less(a->num_blocks, a->weight, b->num_blocks, b->weight);
  });
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
    if (s_.lacks_block(state)) {
      if (!free_block(client, i)) return;
      --num_blocks_behind_;
    }
    --decodes_left_;
    schedule_decode(state);
  }
}

void Scheduler::StepMaker::schedule_waiting(ClientQueue& client) {
  if (client.waiting.empty()) return;
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
  step.chunks.reserve(batch_.sequences.size());
  for (const ScheduledSequence& s : batch_.sequences) {
    step.chunks.push_back({s.id, s.num_computed_tokens, s.num_logits_rows()});
  }
  s_.in_flight.push_back(std::move(step));
}

ScheduledBatch Scheduler::schedule(int64_t max_prefill_tokens, int64_t prompt_logprobs_cost) {
  check(max_prefill_tokens >= 1, "a step has room for a prompt token");
  check(prompt_logprobs_cost >= 1, "a token with log-probabilities counts as one at least");
  return StepMaker(*impl_, max_prefill_tokens, prompt_logprobs_cost).make();
}

}  // namespace quire
