#pragma once
// One rank on a GPU.
//
// launch() queues a step's work and returns while the GPU works on it, so the next step is built
// and uploaded meanwhile. Sampled tokens stay on the GPU as the next step's input; the host learns
// them from a copy. Steps without prompts are captured as CUDA graphs, one
// for each of a ladder of sizes, and more where drafts are verified, logits are adjusted or all
// ranks want all of them, the second time that it is met. Of a step with drafts the next has to
// know which of them stay, so that one waits for its tokens. Of several ranks each samples its
// share of the rows, where there are enough and nothing but their tokens is wanted.
//
// Where some rows of a step are masked, the model runs first. Meanwhile the host learns the tokens
// of the step before, makes the masks and queues the sampling behind the model, so the GPU does not
// wait as long as that takes less time than the model does. Drafts that a model makes
// (runner/gpu_drafter.h) are on the GPU like the tokens of a step before; the host learns them with
// the step's results, or for its masks. Steps in which some rows have adapters
// have graphs of their own, which serve any mix of adapters.
//
// Of a model that is cut into stages a rank has the layers of one. It hands their state to the next
// stage's GPU, and the last stage hands the ids of sampled tokens to the first
// (runner/gpu_stage.h): the GPUs wait for each other, the hosts are steps ahead. Stages in between
// do not learn tokens. A sequence whose drafts are verified is scheduled again when the step's
// result is known, so the first stage and the last learn which drafts stayed before its next chunk.
// A drafter is on the first stage, which embeds its drafts, and hands them to the last. It makes a
// step's drafts when the step begins, while the other stages are at work on those before it.
//
// Where the driver finds no memory for a graph, its steps run without one. Where it finds none for
// something else and there is one rank, the step's output is void, and so is that of the steps that
// were scheduled before that was known. With several ranks it is an error that ends the engine, as
// the others would wait for this one's results.
// Thread safety: as RankRunner says.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "models/model.h"
#include "runner/gpu_batch.h"
#include "runner/gpu_drafter.h"
#include "runner/gpu_logprobs.h"
#include "runner/gpu_lora_slots.h"
#include "runner/gpu_masks.h"
#include "runner/gpu_sizes.h"
#include "runner/gpu_stage.h"
#include "runner/gpu_taps.h"
#include "runner/kv_cache.h"
#include "runner/prompt_logprobs.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

struct GpuRank {
  DeviceLibrary* library = nullptr;
  int index = 0;            // of the GPU
  size_t memory_bytes = 0;  // to reserve: the plan's
};

class GpuRunner final : public RankRunner {
 public:
  // What `groups` and `links` point to outlives the runner, and so do `pool` and the library.
  GpuRunner(const RunnerOptions& options, const GpuRank& gpu, const RankGroups& groups,
            const StageLinks& links, ThreadPool& pool);
  ~GpuRunner() override;

  void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) override;
  std::unique_ptr<PendingStep> launch(const ScheduledBatch& batch) override;
  void finish() override { gpu_->synchronize(); }

 private:
  // A step whose results are on their way.
  struct Launched;
  class Pending;
  // Steps that share a graph.
  struct GraphKey {
    int64_t seqs = 0;
    int64_t tokens = 0;
    int64_t queries = 0;  // of a sequence, at most
    int64_t table_width = 0;
    bool adjusts_logits = false;
    bool splits_logits = false;
    bool has_loras = false;
    LoraExtras lora_extras = {};
    bool samples = true;  // false: with masks, which come later than the step is launched
    auto operator<=>(const GraphKey&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // What a step leaves in the arena.
  struct Computed {
    IntermediateTensors state;  // of the stage's last layer
    Tensor logits;              // of the last stage: of the rows that are sampled
  };
  // What one kind of step was captured as; where there is no graph, not yet, or for want of memory.
  struct Captured {
    std::unique_ptr<DeviceGraph> graph;
    Computed computed;
    int64_t num_runs = 0;  // without a graph
  };

  // Queues all of a step.
  void run(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
           const SamplingPlaces& places, Launched& step);
  // A step in the place of one that does not run, or was left half done. `failure`: as StepOutput
  // has it.
  std::shared_ptr<Launched> make_void(const Launched& step, std::string failure);
  // What a step is to bring, and where it is to be put.
  std::shared_ptr<Launched> describe(const ScheduledBatch& batch,
                                     std::span<const StepSequence> sequences,
                                     const SamplingPlaces& places);
  // Queues the model and the sampling.
  Computed compute(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                   Launched& step);
  // Queues what brings the results back.
  void collect(std::span<const StepSequence> sequences, const Tensor& logits, Launched& step);
  // For the steps to come.
  void remember(std::span<const StepSequence> sequences, const std::shared_ptr<Launched>& step);
  // Whether this rank is of the stage that begins or ends the model.
  bool is_first() const { return !stage_ || stage_->is_first(); }
  bool is_last() const { return !stage_ || stage_->is_last(); }
  // Learns of what was sampled before what the chunks of a step need.
  void learn_sampled(const ScheduledBatch& batch);
  // On the first of several stages: queues what brings the ids that the chunks begin with.
  void receive_needed(std::span<const StepSequence> sequences);
  // The same for the oldest ids that the last stage has sampled.
  void receive_oldest_ids();
  // Whether a sequence has a token of the step that the host does not know.
  bool is_awaited(const Launched& step) const;
  // Whether a batch has drafts and this rank a drafter, which has to know the tokens before them.
  bool makes_drafts(const ScheduledBatch& batch) const;
  // The newest steps in flight whose tokens the host need not know for this batch: in which no
  // drafts of its sequences are, and nothing of those that this rank is to draft for.
  size_t num_steps_not_needed_by(const ScheduledBatch& batch) const;
  // Learns the tokens of all but the last `keep` steps.
  void settle(size_t keep);
  // Tells the sequences the tokens of a step that is done.
  void tell_tokens(const Launched& step);
  // Says where the drafts that are to be made will be.
  void place_drafts(std::span<const StepSequence> sequences);
  // Queues what makes them.
  void make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                   Launched& step);
  // On the last of several stages: queues what brings them from the first.
  void receive_drafts(Launched& step);
  // On the first of several stages, with a head: keeps what the model has handed out for the step.
  void hold_taps(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                 const Launched& step);
  // Has the head know what all stages have handed out for the oldest step, and read its prompts.
  void keep_oldest_taps();
  // Waits for drafts that the GPU makes, for what the host does with them.
  void learn_drafts(std::span<const StepSequence> sequences, Launched& step);
  // Fills the step's arrays and queues their upload.
  ForwardBatch upload(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                      const StepLoras& loras, Launched& step);
  IntermediateTensors run_model(ForwardBatch& forward);
  // Computes logits, and samples where no row is masked; returns the logits. `splits`: as
  // splits_logits() said.
  Tensor run_output(ForwardBatch& forward, const Tensor& hidden, const Launched& step, bool splits);
  Computed run_captured(ForwardBatch& forward, Launched& step, bool splits);
  // Makes a graph of what run() queues, unless there is no memory for it.
  void capture(const std::function<Computed()>& run, Captured& captured);
  // Whether each rank samples its share of the rows, of the step's `num_logits`.
  bool splits_logits(const Launched& step, int64_t num_logits) const;
  void adjust(const Tensor& logits, const StepShape& shape, int64_t first_row);
  // The token of each row of logits, the step's from first_row on; adjusts the logits first where
  // the shape says so.
  void sample(const Tensor& logits, const StepShape& shape, int64_t first_row);
  ops::CudaSample sample_args(const Tensor& logits, int64_t first_row) const;
  // The same for a step with masks, which it makes when the tokens of the step before are known.
  void sample_masked(std::span<const StepSequence> sequences, const Tensor& logits, Launched& step);
  // Waits for the tokens that sample() chose, and samples others where a mask refuses them.
  void sample_again(ops::CudaSample args, Launched& step);
  void make_masks(std::span<const StepSequence> sequences, Launched& step);
  size_t result_bytes() const { return static_cast<size_t>(sizes_.sampled_ids + sizes_.logprobs); }
  int32_t* sampled_ids() const;  // on the GPU
  // Those of rows [first, first + count): int32[1, count].
  Tensor sampled_ids_of(int64_t first, int64_t count) const;
  // Shows all ranks the tokens that each has sampled.
  void gather_sampled(int64_t num_logits);
  // Finds the log-probabilities that were asked for, of what sample() chose.
  void find_logprobs(const Tensor& logits, Launched& step);
  // Samples the rows that are the host's, over what sample() chose.
  void sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                      Launched& step);
  // Some of them, at once.
  void sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                      std::span<const size_t> rows, Launched& step);
  // Waits for the GPU, for each of `prompts`.
  void compute_prompt_logprobs(std::span<const PromptRows> prompts, const StepLoras& loras,
                               const ForwardBatch& forward, const Tensor& hidden, Launched& step);

  RunnerOptions options_;
  Communicator& comm_;
  ThreadPool& pool_;
  DeviceLibrary& library_;
  GpuSizes sizes_;
  std::unique_ptr<DeviceStream> gpu_;
  std::unique_ptr<DeviceMemory> memory_;
  Device device_;
  std::optional<GpuStage> stage_;  // of a model that is cut into several
  Stream stream_;
  Stream host_stream_;
  std::unique_ptr<Model> model_;
  KvCache kv_cache_;
  Buffer cached_ids_;  // of each slot of the cache: CudaResolveTokens'
  Arena arena_;
  StepInputs inputs_;
  StepArrays on_device_ = {};  // of the step that is being launched
  Buffer attention_scratch_;
  Buffer sample_scratch_;
  Buffer sampled_ids_;                      // of the last step, in the order of its rows of logits
  std::optional<GpuLoraSlots> lora_slots_;  // where adapters are served
  std::optional<GpuLoraStep> lora_step_;    // of the step that is being launched, if it has any
  GpuLogprobs logprobs_;
  PromptIds prompt_ids_;
  // Of the first stage; null: drafts have ids, or another rank has it.
  std::unique_ptr<GpuDrafter> drafter_;
  GpuDraftPlaces received_drafts_;   // on the last of several stages: of the step
  std::optional<GpuTaps> taps_;      // of several stages, where there is a head
  GpuDraftEvents read_taps_;         // reading for which no step has accounted yet
  std::unique_ptr<GpuMasks> masks_;  // of the rank that samples constrained rows; else null
  // Of as many steps as inputs_ has arrays of: sampled ids, then logprobs.
  std::shared_ptr<PinnedBuffer> results_;
  size_t next_result_ = 0;
  std::deque<std::shared_ptr<Launched>> in_flight_;
  std::map<GraphKey, Captured> captured_;
  uint64_t num_failed_steps_ = 0;
  SequenceTable table_;
};

}  // namespace quire
