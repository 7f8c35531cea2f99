#include "runner/gpu_stage.h"

#include "base/check.h"
#include "runner/gpu_draft_inputs.h"

namespace quire {
namespace {

// Whose states a stage keeps for the next one.
constexpr size_t kSentSteps = 2;

// Steps whose ids the first and the last stage keep: those in flight, with async scheduling one
// more than stages, and the one that is launched.
size_t num_id_slots(int num_stages) {
  return static_cast<size_t>(num_stages) + 2;
}

int64_t state_bytes(const RunnerOptions& options) {
  return 2 * static_cast<int64_t>(IntermediateTensors::bytes_each(
                 options.model.dtype, options.max_tokens, options.model.config.hidden_size));
}

// Those of the newest steps, then the drafts of one.
size_t ids_bytes(int num_stages, int64_t max_ids, int64_t max_drafts) {
  const size_t count = num_id_slots(num_stages) * static_cast<size_t>(max_ids);
  return (count + static_cast<size_t>(max_drafts)) * sizeof(int32_t);
}

size_t sent_drafts_bytes(int num_stages, int64_t max_drafts) {
  return num_id_slots(num_stages) * static_cast<size_t>(max_drafts) * sizeof(int32_t);
}

}  // namespace

GpuStage::GpuStage(const RunnerOptions& options, int stage, int num_stages, int64_t max_ids,
                   const StageLinks& links, const Device& device)
    : stage_(stage),
      num_stages_(num_stages),
      max_ids_(max_ids),
      max_tokens_(options.max_tokens),
      hidden_size_(options.model.config.hidden_size),
      dtype_(options.model.dtype),
      links_(links),
      is_here_(num_id_slots(num_stages)),
      max_drafts_(num_draft_ids(options)) {
  const auto bytes = static_cast<size_t>(state_bytes(options));
  if (!is_first()) received_ = Buffer(bytes, device);
  if (!is_last()) sent_ = Buffer(kSentSteps * bytes, device);
  if (is_first() || is_last()) ids_ = Buffer(ids_bytes(num_stages, max_ids, max_drafts_), device);
  if (is_first()) sent_drafts_ = Buffer(sent_drafts_bytes(num_stages, max_drafts_), device);
}

void GpuStage::connect(DeviceStream& stream) {
  constexpr size_t kBytes = sizeof(int32_t);
  // In the order of the stages: nobody waits for one that waits for him.
  if (!is_first()) links_.from_previous->take(stream, received_.data(), kBytes);
  if (!is_last()) links_.to_next->offer(stream, sent_.data(), kBytes);
  if (is_last()) links_.ids_to_first->offer(stream, ids_.data(), kBytes);
  if (is_first()) links_.ids_from_last->take(stream, ids_.data(), kBytes);
  const bool has_drafts = max_drafts_ > 0;
  if (is_first() && has_drafts) links_.drafts_to_last->offer(stream, sent_drafts_.data(), kBytes);
  if (is_last() && has_drafts) receive_drafts(stream, 1);
  // The first step writes where these were read.
  if (!is_last()) links_.to_next->await_taken(stream, 0);
  if (is_last()) links_.ids_to_first->await_taken(stream, 0);
  if (is_first() && has_drafts) links_.drafts_to_last->await_taken(stream, 0);
}

int64_t GpuStage::bytes(const RunnerOptions& options, int64_t max_ids) {
  const auto num_stages = static_cast<int>(options.model.stage_layers.size());
  if (num_stages <= 1) return 0;
  return (1 + static_cast<int64_t>(kSentSteps)) * state_bytes(options) +
         static_cast<int64_t>(ids_bytes(num_stages, max_ids, num_draft_ids(options)) +
                              sent_drafts_bytes(num_stages, num_draft_ids(options)));
}

std::optional<IntermediateTensors> GpuStage::received_state(int64_t num_tokens) const {
  if (is_first()) return std::nullopt;
  return IntermediateTensors::lying_at(received_.data(), dtype_, num_tokens, hidden_size_);
}

void GpuStage::receive_state(DeviceStream& stream, int64_t num_tokens) {
  check(num_tokens <= max_tokens_, "a step's state fits where the plan put it");
  links_.from_previous->take(stream, received_.data(),
                             2 * IntermediateTensors::bytes_each(dtype_, num_tokens, hidden_size_));
}

void GpuStage::send_state(DeviceStream& stream, const IntermediateTensors& state) {
  check(state.hidden.contiguous() && state.residual.contiguous() &&
            state.hidden.dtype() == dtype_ && state.residual.dtype() == dtype_,
        "a stage's state is contiguous and of the model's type");
  const size_t bytes =
      IntermediateTensors::bytes_each(dtype_, state.hidden.dim(0), state.hidden.dim(1));
  const size_t slot_bytes = sent_.size() / kSentSteps;
  check(2 * bytes <= slot_bytes, "a step's state fits where the plan put it");
  std::byte* const to = sent_.data() + next_sent_ * slot_bytes;
  next_sent_ = (next_sent_ + 1) % kSentSteps;
  links_.to_next->await_taken(stream, kSentSteps - 1);
  check(static_cast<std::byte*>(state.hidden.raw()) + bytes == state.residual.raw(),
        "on a GPU a state's residual lies behind its hidden");
  stream.copy_on_device(to, state.hidden.raw(), 2 * bytes);
  links_.to_next->offer(stream, to, 2 * bytes);
}

int32_t* GpuStage::slot(size_t index) {
  return reinterpret_cast<int32_t*>(ids_.data()) + index * static_cast<size_t>(max_ids_);
}

int32_t GpuStage::begin_ids() {
  const size_t index = num_begun_++ % num_slots();
  is_here_[index] = false;
  return static_cast<int32_t>(index * static_cast<size_t>(max_ids_));
}

void GpuStage::send_ids(DeviceStream& stream, const int32_t* sampled, size_t count) {
  int32_t* const to = slot((num_begun_ - 1) % num_slots());
  links_.ids_to_first->await_taken(stream, num_slots() - 1);
  stream.copy_on_device(to, sampled, count * sizeof(int32_t));
  links_.ids_to_first->offer(stream, to, count * sizeof(int32_t));
}

const int32_t* GpuStage::receive_ids(DeviceStream& stream, size_t count) {
  check(num_received_ < num_begun_, "ids are received of a step that samples");
  const size_t index = num_received_++ % num_slots();
  is_here_[index] = true;
  links_.ids_from_last->take(stream, slot(index), count * sizeof(int32_t));
  return slot(index);
}

void GpuStage::send_drafts(DeviceStream& stream, size_t count) {
  check(static_cast<int64_t>(count) <= max_drafts_, "a step's drafts fit where the plan put them");
  int32_t* const to = reinterpret_cast<int32_t*>(sent_drafts_.data()) +
                      next_sent_drafts_ * static_cast<size_t>(max_drafts_);
  next_sent_drafts_ = (next_sent_drafts_ + 1) % num_slots();
  links_.drafts_to_last->await_taken(stream, num_slots() - 1);
  stream.copy_on_device(to, recent_ids() + first_draft(), count * sizeof(int32_t));
  links_.drafts_to_last->offer(stream, to, count * sizeof(int32_t));
}

void GpuStage::receive_drafts(DeviceStream& stream, size_t count) {
  links_.drafts_from_first->take(stream, recent_ids() + first_draft(), count * sizeof(int32_t));
}

bool GpuStage::has_ids(int32_t place) const {
  return is_here_[static_cast<size_t>(place) / static_cast<size_t>(max_ids_)];
}

}  // namespace quire
