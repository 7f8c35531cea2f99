#pragma once
// What a head on the first stage sees of the layers of all stages, on GPUs; as runner/stage_taps.h
// has it on the CPU.
//
// A stage's layers hand their inputs out at one address, which CUDA graphs can contain. From there
// they are copied to where they stay until the first stage takes them: when it queues what needs
// the result of the step, so that its GPU never waits for a step that runs. Thread safety: one
// thread, the rank's worker.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "core/stream.h"
#include "layers/forward_context.h"
#include "runner/rank_runner.h"
#include "runner/stage_link.h"
#include "runner/stage_taps.h"

namespace quire {

class GpuTaps {
 public:
  // A step whose states are on their way to the drafter.
  struct Step {
    uint64_t number = 0;
    int64_t num_tokens = 0;
    Tensor slots{};                       // int64[num_tokens], on the GPU
    std::vector<TappedPrompt> prompts{};  // that the drafter is to read
    size_t slot = 0;
  };

  // Of stage `stage` of several. `options` have a draft that is a head. Takes bytes() of the
  // device's memory. What `links` point to outlives this.
  GpuTaps(const RunnerOptions& options, int stage, const StageLinks& links, const Device& device);

  // Of any stage, at most; none for a model of one stage, or without a head.
  static int64_t bytes(const RunnerOptions& options);

  // As GpuStage::connect(), behind that.
  void connect(DeviceStream& gpu);

  // What this stage's layers are to hand out in a pass over that many tokens; null: nothing. Holds
  // until the next call.
  const AuxStates* states_of(int64_t num_tokens);
  // By the stages behind the first: queues the way of it to the first.
  void send(DeviceStream& gpu, int64_t num_tokens);

  // By the first stage, after the pass: keeps a step, whose `slots` are on the GPU.
  void hold(DeviceStream& gpu, Step step, const int64_t* slots);
  // Steps that are held, the oldest first. Before another one can be held where there is no room,
  // the oldest has to be taken; its result is known then.
  const std::deque<Step>& held() const { return held_; }
  bool has_room() const { return held_.size() < num_slots_; }
  // By the first: queues what brings the oldest step's states to `states`, [num_tokens, columns of
  // all stages]. Its slots hold until the next hold() on the stream.
  Step take(DeviceStream& gpu, Stream& stream, const Tensor& states);

 private:
  size_t bytes_of(int64_t num_tokens, const std::vector<int64_t>& layers) const;
  Tensor rows_at(std::byte* at, int64_t num_tokens, const std::vector<int64_t>& layers) const;
  int64_t width_of(const std::vector<int64_t>& layers) const;

  int stage_;
  size_t num_slots_;
  int64_t hidden_size_;  // of the model
  int64_t max_tokens_;
  DType dtype_;
  StageLinks links_;
  std::vector<std::vector<int64_t>> layers_;  // by stage
  Buffer row_ids_;                            // int32[max_tokens]: 0, 1, ...
  Buffer handed_out_;                         // by the pass
  Buffer kept_;                               // of num_slots_ steps, the same
  Buffer slots_;                              // of the first stage: int64[num_slots_, max_tokens]
  Buffer received_;                           // of the first: what another stage sends
  size_t next_slot_ = 0;
  AuxStates states_;
  std::deque<Step> held_;
};

}  // namespace quire
