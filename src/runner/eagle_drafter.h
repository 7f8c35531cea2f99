#pragma once
// A rank's part of an EAGLE or EAGLE-3 head that makes drafts for the model of the rank.
//
// What the head knows of a token that the model has computed, its projection of the inputs of some
// of the model's layers, is kept for each slot of the KV cache: it is there wherever the model's
// keys are, after prefix hits and preemption, too. So the head may lag behind and catch up as a
// draft model does (runner/draft_model.h), with a cache of its own on the model's block tables.
//
// Slot p of the head's cache is of what is known of token p together with token p + 1. Behind the
// newest token there is nothing known: a draft's row takes the head's own output of the row before,
// and is written anew once the model has computed it. The last slot of a block that sequences share
// has the token that followed first; where others go on with another, drafts are made from it all
// the same. Drafts are sampled with the sequence's parameters, its constraint and the model's
// noise. What they are decides how many steps an answer takes, never the answer.
//
// All ranks of the group run the same steps; rank 0 samples. Thread safety: one thread, the rank's
// worker.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "models/eagle_head.h"
#include "request/scheduled_batch.h"
#include "runner/batch_builder.h"
#include "runner/draft_pieces.h"
#include "runner/draft_slots.h"
#include "runner/draft_times.h"
#include "runner/kv_cache.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"

namespace quire {

class EagleDrafter {
 public:
  // Allocates the rank's part; weights are zero. `options` have a draft that is a head, for
  // `target`. All but the options outlive this.
  EagleDrafter(const RunnerOptions& options, const Model& target, Communicator& comm,
               Stream& stream);

  // Bytes of a step beside the head's activations (CountedModel), and of each token of the cache
  // beside keys and values.
  static int64_t step_bytes(const RunnerOptions& options);
  static int64_t bytes_per_token(const ModelOptions& head);

  void load(const ProgressCallback& on_progress);

  // Puts drafts in the places of the step's chunks that have kDraftOfRunner. A chunk with one has
  // no drafts of other makers. Called once for every step, before the model runs.
  DraftTimes make_drafts(std::span<const StepSequence> sequences);
  // Takes what the model has handed out for a step's tokens, which have these slots: states
  // [tokens, tapped_width()]. Called once for every step, in their order, after the model ran.
  void keep(const Tensor& states, std::span<const int64_t> slots);
  // Reads prompts of a step that was kept, where it has read the text before them. The seconds that
  // it took.
  double read_prompts(std::span<const DraftPiece> prompts);

 private:
  using Piece = DraftPiece;

  // Where what is known of the rows of a pass comes from.
  enum class Known { kOfTokens, kOfDrafts };

  // Takes rows [begin, end) that are to be read, if there are any; they count as read.
  void take(SequenceState& state, int64_t begin, int64_t end, std::vector<Piece>& pieces);
  // What is to be read before the first drafts, whose pass reads up to max_tokens rows itself.
  std::vector<Piece> take_unread(std::span<const StepSequence* const> drafting);
  // Runs pieces of any length.
  void read(std::span<const Piece> pieces);
  // Makes draft `index` of each of the sequences, which have that many.
  void make_draft(std::span<const StepSequence* const> sequences, int64_t index);
  // Runs pieces of max_tokens together at most, and calls `with_state` with what they end in.
  template <typename WithState>
  void run(std::span<const Piece> pieces, Known known, const WithState& with_state);
  // Samples the token behind that which each piece ends with.
  std::vector<int32_t> sample(const ForwardBatch& forward, const Tensor& hidden,
                              std::span<const Piece> pieces);
  // Logits over the model's vocabulary: those of tokens that are not drafted are -inf. In the
  // arena.
  Tensor spread(const Tensor& logits);

  RunnerOptions options_;
  Communicator& comm_;
  Stream& stream_;
  EagleHead head_;
  KvCache kv_cache_;
  Arena arena_;
  BatchBuilder builder_;
  DraftSlots slots_;
  std::vector<int32_t> row_ids_;  // 0, 1, ... max_tokens - 1
  Buffer known_memory_;
  Tensor known_;  // [slots, hidden_size]: by slot of the cache
  Buffer drafted_memory_;
  Tensor drafted_;                   // [max_num_seqs, hidden_size]: the last pass's rows, by place
  std::vector<int32_t> drafted_of_;  // by sequence of the pass that runs: its row there
};

}  // namespace quire
