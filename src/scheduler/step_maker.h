#pragma once
// Makes one step of a scheduler, and is gone then. What it does is in four files, a part in each:
//
//   schedule_step.cc  the turns: of the clients, and of the sequences of each
//   step_shares.cc    what each client, and each of its prompts, may have of the step
//   step_chunks.cc    the chunks that the batch is made of, and what they are charged as
//   step_room.cc      places and blocks, and who gives them up
//
// Thread safety: none needed; the scheduler's thread owns it.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "scheduler/scheduler_impl.h"

namespace quire {

class Scheduler::StepMaker {
 public:
  using ClientQueue = Impl::ClientQueue;
  using ScheduledState = Impl::ScheduledState;

  StepMaker(Impl& scheduler, int64_t max_prefill_tokens, int64_t prompt_logprobs_cost)
      : s_(scheduler),
        prompt_logprobs_cost_(prompt_logprobs_cost),
        prefill_left_(max_prefill_tokens),
        drafts_left_(scheduler.config.max_drafts),
        order_by_use_(2 * s_.num_running > s_.config.max_num_batched_tokens),
        is_contested_(s_.config.num_stages > 1) {}

  ScheduledBatch make();

 private:
  void begin();
  // What a client has this step: its prompts, and the blocks that its next tokens need.
  void look_at(ClientQueue& client);
  // Puts clients in their places for this step: what each has used is kept within bounds, and those
  // that begin are level with the others.
  void set_virtual_times();
  void put_in_order();
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
  int64_t num_decoding_ = 0;                // running sequences whose prompts are computed
  int64_t prefill_left_;
  int64_t drafts_left_;
  int64_t decodes_left_ = std::numeric_limits<int64_t>::max();  // sequences
  // Almost no step has room for prompts beside so many sequences: then whoever used least goes
  // first, and nothing is kept for those behind.
  bool order_by_use_;
  // Whether a sequence waits, or there are too few blocks or, with several stages, places in the
  // step: else nobody goes without.
  bool is_contested_;
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

}  // namespace quire
