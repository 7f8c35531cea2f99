#pragma once
// Decides which tokens of which sequences run in the next step, and in which KV blocks.
//
// One kind of step: under one token budget, first the running sequences of a client (each with a
// decode token or the next chunk of its prompt), then its waiting ones while there is budget, a
// place and enough free blocks for all their tokens; then those of the next client. Within a
// client, lower priority numbers go first, then earlier arrivals, and a waiting sequence is
// overtaken only if its adapter has to wait. When a running sequence needs a block and none is
// free, a sequence is preempted: among those whose turn is still to come, the last one of the
// client that holds the most for its weight. It gives up its blocks and goes back to the queue, to
// be computed again (mostly from the prefix cache).
//
// Clients share (Request::client, client_weight):
// - Tokens by what each has used, prompts and answers (fair_share.h). Tokens found in the prefix
// cache are free. What a client does not need goes to the others.
// - Places and blocks by what each holds now. If a waiting sequence finds none, the last sequence
// of a later client is preempted, provided that client then still holds as much for its weight as
// the waiting one's, so that nothing goes back and forth. If there are still not enough blocks, no
// sequence after it is admitted, or it might never get them; except that the first sequence of a
// client that holds none waits only for clients that hold none either.
// Consequences, which scheduler_fairness_test.cc and scheduler_property_test.cc test:
// - A client that had no prompts to compute and gets one has tokens of it in the next step, where
//   it gets a place and blocks as above, and no more than max(4, prompt tokens of a step / 64)
//   clients have prompts: the whole prompt, if it is no longer than its part of that step.
// - While two clients have prompts to compute, and places and blocks for them, the tokens that they
//   get for their weights differ by less than a chunk of 128 and a step's rounding.
// - Nobody starves: however many clients come, each has its turn once the others had as much for
//   their weights as a full step holds.
// - No step leaves budget for prompts unused while a prompt that runs has tokens left, or a
//   sequence could be admitted. (A step that preempted one for others' next tokens admits none.)
//
// Steps may be scheduled ahead of their results: a token that an unfinished step will sample counts
// as a placeholder, and is scheduled like any other. A sequence is not scheduled past a length
// limit, but may be past a stop token not yet seen: that overshoot is dropped by process().
//
// A step may bring several tokens of a sequence. propose() gives drafts, guesses of what follows
// the sequence's newest token, and its next chunk behind its prompt is then a verify chunk: the
// newest token and k drafts, of which 1 to k + 1 tokens come back. A draft is kept where it is the
// token that the runner samples in its place, so drafts decide how many steps a sequence takes, and
// never what it gets. They take what is left: of the budget and the free blocks, once every running
// sequence behind has what its next token needs, so that no step preempts a sequence for a draft;
// of the length limit, all; of max_drafts, in the order of the sequences. Drafts for which there is
// no room are dropped. While a verify chunk is in flight, the most that it may bring counts, in
// placeholders, blocks and lengths. process() takes placeholders and lengths back for what did not
// come; the blocks stay with the sequence, whose next chunk writes the slots of rejected drafts
// again.
//
// Where the runner's layers are cut into P stages (num_stages), P steps are at work at a time, each
// in another stage, and the caller keeps that many in flight, or one more. The sequences that
// decode are then divided between P steps that go round:
// - A sequence whose token is awaited is in none of the P - 1 steps that follow. The step after
//   these may begin with the placeholder: the runner knows the token by then.
// - A sequence whose verify chunk is in flight waits for its result. So the next chunk begins at
//   num_computed_tokens, which tells stages that do not learn the tokens how many drafts stayed.
// - A step has at most an equal part of the sequences that decode (rounded up), and of those that
//   may be scheduled now as many as leave some for the stages that have no step yet.
// - A step has at most stage_chunk() prompt tokens. Chunks of one prompt follow each other without
//   waiting, as only the last one samples.
//
// The caller may also limit the prompt tokens of a step, so that no step takes long while others
// wait for their next token. Then up to kMaxSharingPrefills prompts of a client share what it gets
// in equal parts, so that a short prompt is not held up by long ones. What short ones leave goes to
// the others.
//
// What the runner owes: it runs every batch that schedule() returned, in order, and in each layer
// writes the keys and values of the whole batch before it reads those of a prefill, for a sequence
// that is new may read blocks that another one of the same batch fills. It starts decode and verify
// chunks at the newest token that it has, samples behind every token of a verify chunk, keeps the
// longest prefix of the drafts in which each is what was sampled in its place, and returns these
// and the token sampled behind the last of them. Where a draft is kDraftOfRunner, it makes one.
//
// Sequences may have an adapter (Request::lora_id). Those that run have at most max_loras different
// ones, so a step has no more. A waiting sequence with another one lets all others pass, until
// kMaxLoraOvertakes sequences with adapters that came after it began to run: then those wait, too,
// until one of the adapters that run has none left, and it has its turn. A client whose sequence
// does not begin in kMaxUnusedLoraTurns steps, as others of its client go before it or places,
// blocks or tokens are missing, lets others pass again, kMaxLoraOvertakes for each of its own.
//
// A function of its calls: no clock, no randomness, no tensors.
// Thread safety: one thread at a time.
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "request/scheduled_batch.h"
#include "request/sequence.h"

namespace quire {

// SchedulerConfig::least_stage_chunk where the runner has CPUs, and where it has GPUs.
inline constexpr int64_t kLeastStageChunk = 256;
inline constexpr int64_t kLeastStageChunkOfGpus = 512;

struct SchedulerConfig {
  int64_t max_num_batched_tokens = 16384;  // in one step, >= 1
  int64_t max_num_seqs = 512;              // running at a time, >= 1
  int64_t max_model_len = 0;               // prompt and output of a sequence, >= 2
  int block_size = 16;                     // tokens in a block, >= 1
  int64_t num_blocks = 0;                  // num_blocks * block_size >= max_model_len
  bool enable_prefix_caching = true;
  std::vector<int32_t> eos_token_ids;  // that end a sequence unless it ignores them
  int max_loras = 0;                   // different adapters that run; 0: as many as come
  // Drafts in one step, of all sequences, for which the runner has room.
  int64_t max_drafts = std::numeric_limits<int64_t>::max();
  int num_stages = 1;  // of the runner's pipeline, each at work on another step
  // Of stage_chunk(), >= 1. Products of so many rows take longer than reading their weights.
  int64_t least_stage_chunk = kLeastStageChunk;
};

// How many chunks for each stage the prompts make at least (stage_chunk()).
inline constexpr int64_t kStageChunks = 4;

// The most prompt tokens of a step where the runner has several stages and `num_pending` tokens of
// prompts are to be computed: 1 / 4P of them for P stages, as the others wait while the first has
// the first chunk, but at least least_stage_chunk, and at most 1 / 2P of a step's budget where that
// is more. For one stage: no limit.
int64_t stage_chunk(const SchedulerConfig& config, int64_t num_pending);

// What a step brought for one sequence.
struct SequenceUpdate {
  SequenceId id = 0;
  TokenList token_ids;                  // that were generated; none behind the end
  std::vector<TokenLogprobs> logprobs;  // of each of these, if asked for
  // Of the prompt tokens that follow those delivered before (the first token has none), if asked
  // for.
  std::vector<TokenLogprobs> prompt_logprobs;
  int64_t num_cached_tokens = 0;   // prompt tokens found in the prefix cache when it first ran
  int64_t num_preemptions = 0;     // since it was added
  std::optional<SequenceEnd> end;  // set if the sequence ended with the last of token_ids
};

struct SchedulerStats {
  int64_t num_running = 0;
  int64_t num_decoding = 0;   // of these, those whose prompts are computed
  int64_t num_waiting = 0;    // preempted ones included
  int64_t num_in_flight = 0;  // steps scheduled and not processed
  int64_t num_blocks = 0;
  int64_t num_used_blocks = 0;    // held by a sequence; cached ones that nobody holds are free
  int64_t num_running_loras = 0;  // different adapters of running sequences
  // Since the start:
  int64_t num_lora_waits = 0;  // times that a sequence had to wait for its adapter
  int64_t num_preemptions = 0;
  int64_t prefix_cache_queried_tokens = 0;  // prompt tokens looked up
  int64_t prefix_cache_hit_tokens = 0;      // found
  std::array<int64_t, 3> num_finished{};    // indexed by FinishReason
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerConfig config);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Puts a sequence in its client's queue, behind those of its priority.
  void add(Sequence sequence);

  // Ends a sequence from outside: a stop string, a cancelled request. Its blocks are free at once,
  // and what steps in flight still bring for it is dropped. Ids that are unknown or have ended: no
  // effect.
  void finish(SequenceId id, FinishReason reason);
  void abort(SequenceId id) { finish(id, FinishReason::kAbort); }

  // Drafts for the next chunk of a sequence, in the place of earlier ones: up to kMaxDraftTokens
  // ids of the model's vocabulary or kDraftOfRunner, that may follow the newest token that the
  // sequence will have when that chunk runs. Used once. Ids that are unknown or have ended: no
  // effect.
  void propose(SequenceId id, std::vector<int32_t> draft_token_ids);

  // How many tokens steps in flight may bring the sequence, at most; 0 for ids that are unknown or
  // have ended.
  int64_t num_awaited_tokens(SequenceId id) const;

  // How often a sequence was preempted; 0 for ids that are unknown or have ended.
  int64_t num_preemptions(SequenceId id) const;

  // Whether a running sequence has the adapter.
  bool runs_lora(uint64_t lora_id) const;

  // Whether any sequence has not ended.
  bool has_unfinished() const;

  // The next step. It has no sequences where nothing can run before results of steps in flight are
  // known; such a batch still has to reach the runner if `removed` is not empty, and needs no
  // process().
  // `max_prefill_tokens`, >= 1: the most tokens of prefill chunks. Those of prompts whose
  // log-probabilities are asked for take longer: each counts as `prompt_logprobs_cost`, >= 1, in
  // that limit and in what its client has used. The last one may go beyond the limit.
  ScheduledBatch schedule(int64_t max_prefill_tokens = std::numeric_limits<int64_t>::max(),
                          int64_t prompt_logprobs_cost = 1);
  static constexpr int64_t kMaxSharingPrefills = 4;
  static constexpr int64_t kMaxLoraOvertakes = 64;
  static constexpr int64_t kMaxUnusedLoraTurns = 8;

  // Takes the results of the oldest step in flight. One update for each sequence that lives and got
  // tokens or prompt logprobs. A sequence whose update has an `end` is gone already.
  // Where the step failed, no block can be trusted: all that runs is preempted, to be computed anew
  // once the void results of the other steps in flight have come, and the prefix cache is emptied.
  std::vector<SequenceUpdate> process(StepOutput output);

  SchedulerStats stats() const;

  // Aborts, through check(), unless the books balance: every block held exactly as often as
  // counted, free or in use but never both, cached blocks holding what they are filed under, each
  // client's queues in their order and its blocks counted, placeholders as many as steps in flight
  // will fill. Takes time in proportion to all of it.
  void check_integrity() const;

 private:
  struct Impl;
  class StepMaker;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
