#pragma once
// What a rank on a GPU shares with the same rank of the other stages of a pipeline: hidden states
// and residuals on their way from one stage to the next, the ids of sampled tokens, which the last
// stage hands to the first, and those of drafts, which a drafter on the first hands to the last.
//
// Each stage keeps two steps' states for the next, so that it goes on while the next is a step
// behind. What comes from the stage before lies at one address, which CUDA graphs can contain. The
// last stage and the first keep the ids of the newest steps in rings of the same layout, until no
// step in flight begins with one of them. Thread safety: one thread, the rank's worker.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "models/model.h"
#include "runner/rank_runner.h"
#include "runner/stage_link.h"

namespace quire {

class GpuStage {
 public:
  // Stage `stage` of `num_stages`. Takes bytes() of the device's memory. A step has `max_ids` ids
  // at most. What `links` point to outlives this.
  GpuStage(const RunnerOptions& options, int stage, int num_stages, int64_t max_ids,
           const StageLinks& links, const Device& device);

  // Of any stage, at most; none for a model of one stage.
  static int64_t bytes(const RunnerOptions& options, int64_t max_ids);

  // Queues something small over each link, so that the ranks of all stages are connected when it
  // returns: the first message makes NCCL's host threads wait for each other. Before all else.
  void connect(DeviceStream& stream);

  bool is_first() const { return stage_ == 0; }
  bool is_last() const { return stage_ == num_stages_ - 1; }
  // Steps that run beside the one that is launched, at most.
  size_t num_steps_beside() const { return static_cast<size_t>(num_stages_); }

  // Where receive_state() puts what the stage before hands over; nothing on the first stage.
  std::optional<IntermediateTensors> received_state(int64_t num_tokens) const;
  // Queues the copy of the oldest state that was not received yet; the first stage has none.
  void receive_state(DeviceStream& stream, int64_t num_tokens);
  // Hands this stage's state to the next one; not on the last stage.
  void send_state(DeviceStream& stream, const IntermediateTensors& state);

  // On the first and last stage, of ids of the newest steps: where they lie, and where those of a
  // new step begin among them.
  int32_t* recent_ids() const { return reinterpret_cast<int32_t*>(ids_.data()); }
  int32_t begin_ids();
  // On the last stage: hands the ids of the step of the last begin_ids() to the first stage.
  void send_ids(DeviceStream& stream, const int32_t* sampled, size_t count);
  // On the first stage: queues the copy of the oldest ids that were not received. Returns where
  // they come to lie.
  const int32_t* receive_ids(DeviceStream& stream, size_t count);
  // Whether the copy was queued that brings recent_ids()[place].
  bool has_ids(int32_t place) const;

  // Behind these, from recent_ids()[first_draft()] on: the drafts of the step that is launched.
  int64_t first_draft() const { return static_cast<int64_t>(num_slots()) * max_ids_; }
  // On the first stage: hands so many of them to the last.
  void send_drafts(DeviceStream& stream, size_t count);
  // On the last stage: queues the copy of the oldest drafts that were not received.
  void receive_drafts(DeviceStream& stream, size_t count);

 private:
  size_t num_slots() const { return is_here_.size(); }
  int32_t* slot(size_t index);

  int stage_;
  int num_stages_;
  int64_t max_ids_;
  int64_t max_tokens_;
  int64_t hidden_size_;
  DType dtype_;
  StageLinks links_;
  Buffer received_;
  Buffer sent_;  // of kSentSteps steps
  size_t next_sent_ = 0;
  Buffer ids_;
  std::vector<bool> is_here_;  // by slot of ids_
  size_t num_begun_ = 0;
  size_t num_received_ = 0;
  int64_t max_drafts_;  // ids of a step
  Buffer sent_drafts_;  // of as many steps as ids_ has
  size_t next_sent_drafts_ = 0;
};

}  // namespace quire
