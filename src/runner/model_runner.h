#pragma once
// One rank on the CPU. A step is run when it is launched.
//
// A stage gets the hidden state and the residual from the same rank of the stage before, and hands
// them to the next stage. Rank 0 of the last stage samples and tells the tokens to the other ranks
// of that stage, which hand them to the first stage. The first stage goes on with other sequences
// meanwhile, and takes the ids when a step needs one of them. Stages in between do not learn
// sampled tokens: they have unknown_token() in their place. Which drafts of a verify chunk stayed
// they see by where the sequence's next chunk begins; the scheduler makes none before it knows.
//
// A draft model or head is on the first stage, which embeds its drafts: so a step's drafts are made
// when the step begins, while the other stages are at work on those before it. The drafts then go
// to the last stage, which verifies them (runner/stage_drafts.h), and what a head sees of the model
// comes to the first (runner/stage_taps.h). Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "loader/checkpoint.h"
#include "models/model.h"
#include "ops/sampling.h"
#include "quire/engine_config.h"
#include "request/scheduled_batch.h"
#include "runner/batch_builder.h"
#include "runner/draft_model.h"
#include "runner/eagle_drafter.h"
#include "runner/kv_cache.h"
#include "runner/lora_slots.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"
#include "runner/stage_taps.h"

namespace quire {

class ModelRunner final : public RankRunner {
 public:
  // Allocates the rank's part; weights are zero. `groups` and `stream` must outlive the runner.
  ModelRunner(const RunnerOptions& options, const RankGroups& groups, Stream& stream);

  void load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) override;
  // Runs the step.
  std::unique_ptr<PendingStep> launch(const ScheduledBatch& batch) override;
  double waited_s() const override { return waited_s_; }

 private:
  // What was sampled of a sequence, and the first stage does not know yet.
  struct AwaitedIds {
    SequenceId sequence;
    uint64_t serial;  // of its state
    size_t count;
  };

  StepOutput execute(const ScheduledBatch& batch);
  // Has the draft model or the head make the drafts that have no ids yet, and hands them to the
  // last stage; that takes them.
  void make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                   StepOutput& output);
  void send_drafts(std::span<const StepSequence> sequences, const DraftTimes& times);
  DraftTimes receive_drafts(std::span<const StepSequence> sequences);
  // Of the first stage: has the head know what the model has handed out for this step, and read its
  // prompts where `reads_prompts`: at once, or when the other stages have sent their part.
  void keep_taps(const ForwardBatch& forward, std::span<const StepSequence> sequences,
                 bool reads_prompts);
  // The same for the oldest step of which that is awaited.
  void keep_oldest_taps();
  // Runs this stage's layers. The tensors are in the arena.
  IntermediateTensors run_layers(const ForwardBatch& forward);
  // Samples a token for each row of logits, on the last stage. All its ranks get the ids in `ids`;
  // rank 0 also returns log-probabilities.
  std::vector<ops::SampledToken> sample(const ForwardBatch& forward, const Tensor& hidden,
                                        std::span<const StepSequence> sequences,
                                        std::vector<int32_t>& ids);
  // receive() of the pipeline's group; counts the time that it waits.
  void receive(const Tensor& tensor, int from);
  // Sends ids from the last stage to the first.
  void send_sampled_ids(std::vector<int32_t>& ids);
  // Of stages that do not sample: puts an unknown token behind the sequences that do, and notes on
  // the first stage which ids of the step the last stage will send, if any, with what else stages
  // will send.
  void await_sampled(std::span<const StepSequence> sequences);
  // Learns of what was sampled before what the chunks of a step need: on the first stage the ids
  // that they begin with, and older ones; on stages in between how many there are.
  void learn_sampled(const ScheduledBatch& batch);
  void receive_oldest_step();
  // Puts in the place of what was sampled behind drafts what RunnerOptions::synthetic_acceptance
  // says of them.
  void replace_by_synthetic(std::span<const StepSequence> sequences, std::span<int32_t> ids);
  // Appends to the sequences what they keep of what was sampled, and returns it in `output`.
  void keep_sampled(std::span<const StepSequence> sequences, std::span<const int32_t> ids,
                    std::span<const ops::SampledToken> sampled, StepOutput& output);
  void compute_prompt_logprobs(const ForwardBatch& forward, const Tensor& hidden,
                               std::span<const StepSequence> sequences, StepOutput& output);
  // Logits of at most max_logits_rows rows of the hidden state; in the arena.
  Tensor logits_of(const ForwardBatch& forward, const Tensor& hidden, const Tensor& rows);

  RunnerOptions options_;
  RankGroups groups_;
  Stream& stream_;
  std::unique_ptr<Model> model_;
  KvCache kv_cache_;
  Arena arena_;
  SequenceTable table_;
  BatchBuilder builder_;
  // Of the first stage. None, and no head: drafts have ids.
  std::optional<DraftModel> draft_model_;
  std::optional<EagleDrafter> eagle_;
  std::optional<StageTaps> taps_;        // where there is a head
  double read_s_ = 0;                    // that it took to read prompts since the last step's times
  std::optional<LoraSlots> lora_slots_;  // none: no adapters are served
  const LoraStep* lora_ = nullptr;       // of the step; null: it has no adapters
  // Of each step that sampled, or where there is a head of every step, in their order.
  std::deque<std::vector<AwaitedIds>> awaited_;
  double waited_s_ = 0;
};

}  // namespace quire
