#pragma once
// A rank's part of a smaller model that makes drafts for the model of the rank.
//
// It runs at the start of a step: it reads what it has not read of the sequences that are to have
// drafts, then makes one draft of each after the other. Drafts are sampled with the sequence's
// parameters, its constraint and the noise that the model itself will sample with, so that a draft
// of the same distribution is the very token. Callbacks are not asked and adapters left out. What
// it makes decides how many steps an answer takes, never the answer.
//
// Its cache has the model's blocks (runner/draft_slots.h). All ranks of the group run the same
// steps; rank 0 samples. Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "models/model.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/batch_builder.h"
#include "runner/draft_pieces.h"
#include "runner/draft_slots.h"
#include "runner/draft_times.h"
#include "runner/kv_cache.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"

namespace quire {

class DraftModel {
 public:
  using Times = DraftTimes;

  // Allocates the rank's part; weights are zero. `options` have a draft. `comm` and `stream`
  // outlive this.
  DraftModel(const RunnerOptions& options, Communicator& comm, Stream& stream);

  void load(const ProgressCallback& on_progress);

  // Puts drafts in the places of the step's chunks that have kDraftOfRunner. A chunk with one has
  // no drafts of other makers. Called once for every step, before the model runs.
  Times make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences);

 private:
  using Piece = DraftPiece;

  // What is to be read of the sequences before drafts are made of them; it counts as read.
  std::vector<Piece> take_unread(const ScheduledBatch& batch,
                                 std::span<const StepSequence> sequences);
  // Runs pieces of any length.
  void read(std::span<const Piece> pieces);
  // Makes draft `index` of each of the sequences, which have that many.
  void make_draft(std::span<const StepSequence* const> sequences, int64_t index);
  // Runs pieces of max_tokens together at most, and calls `with_hidden` with the final hidden state
  // where it is given.
  template <typename WithHidden>
  void run(std::span<const Piece> pieces, bool wants_logits, const WithHidden& with_hidden);
  // Samples a token behind each piece.
  std::vector<int32_t> sample(const ForwardBatch& forward, const Tensor& hidden,
                              std::span<const Piece> pieces);

  RunnerOptions options_;
  Communicator& comm_;
  Stream& stream_;
  std::unique_ptr<Model> model_;
  KvCache kv_cache_;
  Arena arena_;
  BatchBuilder builder_;
  DraftSlots slots_;
};

}  // namespace quire
