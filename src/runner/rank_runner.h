#pragma once
// One rank: its shard of the model, its KV cache, its copy of the sequences.
//
// A model's layers may be cut into stages, and each stage's layers are split over the ranks of a
// tensor-parallel group. All ranks run the same batches in the same order. Thread safety: one
// thread, the rank's worker.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "dist/communicator.h"
#include "loader/checkpoint.h"
#include "models/model.h"
#include "ops/cuda/linear/algorithms.h"
#include "quire/engine_config.h"
#include "request/logits_processors.h"
#include "request/scheduled_batch.h"
#include "request/token_masks.h"
#include "runner/pending_step.h"

namespace quire {

// A smaller model, or a head (its model has an eagle), that makes drafts for the rank's model, in
// the same tensor-parallel groups, in stages on the first, and with the same blocks.
struct DraftModelOptions {
  ModelOptions model;  // the whole; each rank sets its own rank
  DType kv_cache_dtype = DType::kFloat32;
  std::filesystem::path folder;  // or its GGUF file
};

// Sizes and settings that all ranks share.
struct RunnerOptions {
  ModelOptions model;  // the whole; each rank sets its own rank and layers
  DType kv_cache_dtype = DType::kFloat32;
  int block_size = 16;
  int64_t num_blocks = 0;
  int64_t max_tokens = 0;       // in one step
  int64_t max_num_seqs = 0;     // in one step
  int64_t max_logits_rows = 0;  // computed at a time; a step with more takes several rounds
  // GPU only: drafts of a sequence in a step, and of all in a step, at most; the latter fit beside
  // max_num_seqs rows of logits in max_logits_rows.
  int64_t max_draft_tokens = 0;
  int64_t max_drafts = 0;
  // CPU only: what the ops of a step use for themselves, taken before the first; 0: as they ask for
  // it.
  int64_t scratch_bytes = 0;
  std::vector<int32_t> eos_token_ids;
  // Callbacks of requests; rank 0 calls them in the engine's process. Null: none.
  std::shared_ptr<const LogitsProcessorRegistry> logits_processors;
  // Masks of constrained requests; rank 0 asks for them likewise. Null: none.
  std::shared_ptr<TokenMasks> token_masks;
  // The most adapters in a step (0: none are served), and their largest rank.
  int max_loras = 0;
  int64_t max_lora_rank = 0;
  // GPU only: room on each for an adapter's trained copies of matrices.
  int64_t lora_copy_bytes = 0;
  std::optional<DraftModelOptions> draft;  // none: drafts have ids
  // For measurements: how often a draft stays, whatever is sampled in its place.
  std::optional<double> synthetic_acceptance;
  LoadFormat load_format = LoadFormat::kAuto;
  uint64_t seed = 0;           // of dummy weights
  bool enforce_eager = false;  // GPU only: no CUDA graphs
  // GPU only: algorithms of its matrix products; null: only those of quire's own table.
  std::shared_ptr<const ops::LinearAlgorithms> linear_algorithms;

  // Rows of logits that a GPU has room for: every sequence's, or a piece of a prompt's.
  int64_t most_logits_rows() const { return std::max(max_logits_rows, max_num_seqs); }
};

// The two groups that a rank belongs to.
struct RankGroups {
  // The ranks of its stage, which share its layers.
  Communicator& tensor;
  // The ranks with the same place in the other stages; its rank() is the stage.
  Communicator& pipeline;

  int stage() const { return pipeline.rank(); }
  bool is_first_stage() const { return stage() == 0; }
  bool is_last_stage() const { return stage() == pipeline.size() - 1; }
};

class RankRunner {
 public:
  virtual ~RankRunner() = default;

  // Fills the weights, from `checkpoint` unless load_format is dummy.
  virtual void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) = 0;

  // Starts one step; steps are done in the order of the calls. The step's output is that of rank 0
  // of the last stage; the others' only says whether they failed. What a chunk asks for is said in
  // scheduler/scheduler.h; here a chunk's drafts are kDraftOfRunner all or none, and all only with
  // a draft.
  virtual std::unique_ptr<PendingStep> launch(const ScheduledBatch& batch) = 0;

  // Returns when all steps are done as far as this rank is concerned. Throws Error when one failed.
  virtual void finish() {}

  // On the CPU: seconds, over all launches, that the rank waited for other stages.
  virtual double waited_s() const { return 0; }
};

}  // namespace quire
