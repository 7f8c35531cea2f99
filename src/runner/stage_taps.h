#pragma once
// What a head on the first stage sees of the model (AuxStates), where the layers that it looks at
// are in several stages, or in one.
//
// Each stage has its own layers hand their inputs out. Those behind the first send theirs to it at
// the end of a step, directly, so what goes from stage to stage does not grow. The first stage
// keeps a step's states until those of all stages are there. That is so when the result of the step
// is known, before which none of its sequences is drafted for.
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "layers/forward_context.h"
#include "models/model.h"
#include "runner/draft_pieces.h"
#include "runner/rank_runner.h"
#include "runner/sequence_table.h"

namespace quire {

// Those of a head's layers whose inputs stage `stage` of a model hands out.
std::vector<int64_t> tapped_layers(const ModelOptions& model, int stage, const EagleConfig& head);
// Columns of what a head sees of a token.
int64_t tapped_width(const EagleConfig& head);

// Tokens [begin, end) of a sequence's prompt, which may be gone by now.
struct TappedPrompt {
  SequenceId sequence = 0;
  uint64_t serial = 0;  // of its state
  int64_t begin = 0;
  int64_t end = 0;
};
// The prompts of a step that a drafter is to read, and what is there of them when it can.
std::vector<TappedPrompt> tapped_prompts(std::span<const StepSequence> sequences);
std::vector<DraftPiece> find_prompts(std::span<const TappedPrompt> prompts, SequenceTable& table);

// On the CPU (on GPUs: runner/gpu_taps.h).
class StageTaps {
 public:
  // What the model has handed out for a step.
  struct Step {
    Buffer memory;  // of max_tokens tokens
    Tensor states;  // [tokens, tapped_width()]
    std::vector<int64_t> slots;
    std::vector<TappedPrompt> prompts;
  };

  // `options` have a draft that is a head.
  StageTaps(const RunnerOptions& options, const RankGroups& groups, Stream& stream);

  // Bytes over all ranks: of steps on their way to the drafter, in as many stages as the model has.
  static int64_t bytes(const RunnerOptions& options);

  // What this stage's layers are to hand out in a pass over that many tokens; null: nothing. Holds
  // until the next call.
  const AuxStates* states_of(int64_t num_tokens);
  // By the other stages, after the pass: sends it to the first.
  void send();
  // By the first, after the pass: notes what else there is to know of the step.
  void hold(const ForwardBatch& forward, std::span<const StepSequence> sequences,
            bool reads_prompts);
  // By the first: the oldest step that was held, which the other stages have sent, or will. Calls
  // receive(tensor, stage) for what each of them hands out.
  template <typename Receive>
  Step take(const Receive& receive) {
    Step step = take_oldest();
    for (int stage = 1; stage < groups_.pipeline.size(); ++stage) {
      const Tensor columns = columns_of(step, stage);
      if (!columns.defined()) continue;
      const Tensor received = room_for(columns);
      receive(received, stage);
      copy_rows(received, columns);
    }
    return step;
  }
  // Takes back a step's memory, for another one.
  void give_back(Step step) { spare_.push_back(std::move(step.memory)); }

 private:
  Step take_oldest();
  // The columns of a step that a stage fills; undefined where it fills none.
  Tensor columns_of(const Step& step, int stage) const;
  Tensor room_for(const Tensor& columns);
  static void copy_rows(const Tensor& from, const Tensor& to);

  RankGroups groups_;
  Stream& stream_;
  int64_t hidden_size_;  // of the model
  int64_t width_;
  std::vector<std::vector<int64_t>> layers_;  // by stage
  std::vector<int32_t> row_ids_;              // 0, 1, ... max_tokens - 1
  Buffer message_;                            // of what this stage sends, or receives
  AuxStates states_;
  std::deque<Step> held_;  // of the first stage
  std::vector<Buffer> spare_;
};

}  // namespace quire
