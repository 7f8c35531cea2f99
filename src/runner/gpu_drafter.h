#pragma once
// A rank's part of a model that makes drafts on its GPU: what a smaller model and an EAGLE or
// EAGLE-3 head have in common.
//
// The host says which tokens are read, where drafts are put and with which noise they are sampled.
// It learns them with the step's results. On the GPU's stream the passes follow each other without
// it: what pass i samples stays there, as the input of pass i + 1 and of the step that verifies it.
// All passes of a step are one CUDA graph, one for each of a ladder of shapes, from the second time
// that its shape is met. A pass has the sequences that have drafts left; they are placed by how
// many they have, so that a sequence has the same place in all passes.
//
// Drafts are sampled with the sequence's temperature, top-k, top-p and min-p and the noise that the
// model itself will sample with. Penalties, biases, constraints and callbacks are left out, and so
// are adapters: with them fewer drafts are kept. What it makes decides how many steps an answer
// takes, never the answer.
//
// A row of a pass has a slot of the drafter's cache, whose blocks are the model's
// (runner/draft_slots.h), and the token `token_offset` behind it: a smaller model's slot is of its
// token; a head's is of what is known of a token together with the next one.
//
// Of a model in stages it is on the first, which hands the drafts to the last.
//
// All ranks of the group run the same passes, and each samples all drafts. Thread safety: one
// thread, the rank's worker.
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "layers/forward_context.h"
#include "models/model.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/draft_pieces.h"
#include "runner/draft_slots.h"
#include "runner/gpu_draft_events.h"
#include "runner/gpu_draft_inputs.h"
#include "runner/gpu_draft_places.h"
#include "runner/kv_cache.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

// What a drafter shares with the runner that it belongs to. All of it outlives the drafter.
struct GpuDraftHome {
  DeviceLibrary& library;
  DeviceStream& gpu;
  Stream& stream;
  Communicator& comm;
  const Device& device;
  void* sample_scratch;  // for the step's rows of logits
  // On the GPU: from first_id on num_draft_ids() drafts.
  int32_t* ids;
  int64_t first_id;
};

class GpuDrafter {
 public:
  virtual ~GpuDrafter();
  GpuDrafter(const GpuDrafter&) = delete;
  GpuDrafter& operator=(const GpuDrafter&) = delete;

  // The drafter of these options on this GPU, for `target`, with zero weights.
  static std::unique_ptr<GpuDrafter> make(const RunnerOptions& options, const GpuDraftHome& home,
                                          const Model& target);

  // Bytes of what a rank's part keeps of a step, activations and all; and of each token of the
  // cache beside keys and values.
  static int64_t step_bytes(const RunnerOptions& options, const ModelOptions& part);
  static int64_t bytes_per_token(const ModelOptions& model);

  void load(const ProgressCallback& on_progress);

  // Puts unknown_token(id) in the places of drafts that the runner makes, where `id` is their place
  // among the ids. A chunk with one has no drafts of other makers. Called once for every step,
  // before make_drafts(); `sequences` hold until that has returned.
  void place_drafts(std::span<const StepSequence> sequences);
  // Queues the reading of what was not read, the drafts, and their copy to `drafts` (pinned, as
  // they lie from first_id on). The host knows the tokens before them.
  void make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                   int32_t* drafts, GpuDraftEvents& events);
  // How many ids that copies.
  int64_t num_ids() const { return places_.num_ids(); }

  // What the model is to hand out in a pass over that many tokens, until the next call; null:
  // nothing.
  virtual const AuxStates* states_of(int64_t /*num_tokens*/) { return nullptr; }
  // Queues what is done with it. Called behind each pass, and captured with it; in stages when what
  // all of them have handed out is there.
  virtual void keep(const ForwardBatch& /*forward*/) {}
  // Queues the reading of prompts of a step, once it was kept.
  virtual void read_prompts(std::span<const DraftPiece> /*prompts*/, GpuDraftEvents& /*events*/) {}

 protected:
  using Piece = DraftPiece;

  // A model of `part`, whose passes take extra_arena_bytes beside what the model takes.
  GpuDrafter(const RunnerOptions& options, const GpuDraftHome& home, const ModelOptions& part,
             int64_t extra_arena_bytes, int64_t token_offset);

  // What is to be read before drafts are made; it counts as read. What is left of the text of
  // drafting() is read by the first pass.
  virtual std::vector<Piece> take_unread(const ScheduledBatch& batch,
                                         std::span<const StepSequence> sequences) = 0;
  // Queues a pass; the first is 0, and so is one that reads. Returns the hidden state of its rows,
  // in the arena. known_rows: as GpuDraftArrays has them.
  virtual Tensor run_model(ForwardContext& context, size_t pass, const int32_t* known_rows) = 0;
  // Logits of a pass over the vocabulary of the model that is drafted for; in the arena.
  virtual Tensor compute_logits(ForwardContext& context, const Tensor& hidden) = 0;

  // Rows [begin, end) count as read, and are added to the pieces if there are any.
  void take(SequenceState& state, int64_t begin, int64_t end, std::vector<Piece>& pieces);
  // Queues the reading of pieces of any length.
  void read(std::span<const Piece> pieces, GpuDraftEvents& events);
  std::span<const StepSequence* const> drafting() const { return places_.drafting(); }
  // The row behind the last that a sequence's first pass has.
  int64_t first_end(const StepSequence& sequence) const {
    return sequence.begin + 1 - token_offset_;
  }
  const RunnerOptions& options() const { return options_; }
  const GpuDraftHome& home() const { return home_; }
  const GpuDraftSizes& sizes() const { return sizes_; }
  Model& model() { return *model_; }
  DraftSlots& slots() { return slots_; }
  Arena& arena() { return arena_; }
  DType dtype() const { return options_.draft->model.dtype; }

 private:
  struct GraphKey {
    int64_t seqs = 0;
    int64_t tokens = 0;   // of the first pass
    int64_t queries = 0;  // of a sequence in it, at most
    int64_t table_width = 0;
    size_t passes = 0;
    auto operator<=>(const GraphKey&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Captured {
    std::unique_ptr<DeviceGraph> graph;
    int64_t num_runs = 0;  // without a graph
  };
  // The sequences of a pass as a step has them.
  struct Pass {
    std::vector<ScheduledSequence> chunks;
    std::vector<StepSequence> sequences;
  };

  Pass to_pass(std::span<const Piece> pieces, ChunkKind kind) const;
  // Queues a pass that reads.
  void read_at_once(std::span<const Piece> pieces);
  // What each of the passes has; the rows count as read as far as they stay so.
  std::vector<Pass> take_passes();
  // The shapes of these passes where they can be captured; else nothing.
  std::vector<StepShape> captured_shapes(std::span<const Pass> passes,
                                         std::span<const StepShape> exact) const;
  StepShape exact_shape(const Pass& pass) const;
  void fill(const Pass& pass, const StepShape& shape, const StepArrays& arrays) const;
  static void fill_known_rows(const StepShape& shape, const GpuDraftArrays& arrays);
  // Queues one pass; samples where the shape has logits.
  void run_pass(size_t pass, const StepShape& shape, const GpuDraftArrays& arrays);
  // The same as a graph where there is one. Whether later calls of this kind take less time.
  bool run_captured(const GraphKey& key, std::span<const StepShape> shapes,
                    const GpuDraftArrays& arrays);
  void capture(std::span<const StepShape> shapes, const GpuDraftArrays& arrays, Captured& captured);

  RunnerOptions options_;
  GpuDraftHome home_;
  GpuDraftSizes sizes_;
  int64_t token_offset_;
  std::unique_ptr<Model> model_;
  KvCache kv_cache_;
  Arena arena_;
  GpuDraftInputs inputs_;
  Buffer attention_scratch_;
  DraftSlots slots_;
  std::map<GraphKey, Captured> captured_;
  GpuDraftPlaces places_;  // of the step
};

}  // namespace quire
