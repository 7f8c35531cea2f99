#include "runner/gpu_taps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "ops/embedding.h"

namespace quire {
namespace {

// Steps that are in flight, with async scheduling one more than stages, and the one that is
// launched.
size_t num_steps_kept(int num_stages) {
  return static_cast<size_t>(num_stages) + 2;
}

// Sizes of a stage's pieces, in bytes.
struct TapSizes {
  size_t row_ids = 0;
  size_t handed_out = 0;
  size_t kept = 0;
  size_t slots = 0;
  size_t received = 0;

  size_t total() const { return row_ids + handed_out + kept + slots + received; }
};

TapSizes sizes_of(const RunnerOptions& options, int stage) {
  const EagleConfig& head = *options.draft->model.eagle;
  const auto num_stages = static_cast<int>(options.model.stage_layers.size());
  const auto num_tokens = static_cast<size_t>(options.max_tokens);
  const auto bytes_of = [&](int of_stage) {
    const auto layers = tapped_layers(options.model, of_stage, head);
    return align_up(num_tokens * layers.size() * static_cast<size_t>(head.target_hidden_size) *
                    size_of(options.model.dtype));
  };
  TapSizes sizes;
  sizes.row_ids = align_up(num_tokens * sizeof(int32_t));
  sizes.handed_out = bytes_of(stage);
  sizes.kept = num_steps_kept(num_stages) * sizes.handed_out;
  if (stage > 0) return sizes;
  sizes.slots = align_up(num_steps_kept(num_stages) * num_tokens * sizeof(int64_t));
  for (int other = 1; other < num_stages; ++other) {
    sizes.received = std::max(sizes.received, bytes_of(other));
  }
  return sizes;
}

}  // namespace

int64_t GpuTaps::bytes(const RunnerOptions& options) {
  const auto num_stages = static_cast<int>(options.model.stage_layers.size());
  if (num_stages <= 1 || !options.draft || !options.draft->model.eagle) return 0;
  size_t most = 0;
  for (int stage = 0; stage < num_stages; ++stage) {
    most = std::max(most, sizes_of(options, stage).total());
  }
  return static_cast<int64_t>(most);
}

GpuTaps::GpuTaps(const RunnerOptions& options, int stage, const StageLinks& links,
                 const Device& device)
    : stage_(stage),
      num_slots_(num_steps_kept(static_cast<int>(options.model.stage_layers.size()))),
      hidden_size_(options.draft->model.eagle->target_hidden_size),
      max_tokens_(options.max_tokens),
      dtype_(options.model.dtype),
      links_(links) {
  const EagleConfig& head = *options.draft->model.eagle;
  for (size_t i = 0; i < options.model.stage_layers.size(); ++i) {
    layers_.push_back(tapped_layers(options.model, static_cast<int>(i), head));
  }
  const TapSizes sizes = sizes_of(options, stage);
  row_ids_ = Buffer(sizes.row_ids, device);
  handed_out_ = Buffer(sizes.handed_out, device);
  kept_ = Buffer(sizes.kept, device);
  slots_ = Buffer(sizes.slots, device);
  received_ = Buffer(sizes.received, device);
  const auto num_rows = static_cast<size_t>(max_tokens_);
  device.memory->upload(row_ids_.data(), num_rows * sizeof(int32_t), [&](std::byte* to) {
    auto* rows = reinterpret_cast<int32_t*>(to);
    std::iota(rows, rows + num_rows, 0);
  });
}

void GpuTaps::connect(DeviceStream& gpu) {
  constexpr size_t kBytes = sizeof(int32_t);
  if (stage_ > 0) {
    if (layers_[static_cast<size_t>(stage_)].empty()) return;
    links_.taps_to_first->offer(gpu, kept_.data(), kBytes);
    return links_.taps_to_first->await_taken(gpu, 0);
  }
  for (size_t stage = 1; stage < layers_.size(); ++stage) {
    if (!layers_[stage].empty()) links_.taps_from[stage]->take(gpu, received_.data(), kBytes);
  }
}

int64_t GpuTaps::width_of(const std::vector<int64_t>& layers) const {
  return std::ssize(layers) * hidden_size_;
}

size_t GpuTaps::bytes_of(int64_t num_tokens, const std::vector<int64_t>& layers) const {
  return static_cast<size_t>(num_tokens * width_of(layers)) * size_of(dtype_);
}

Tensor GpuTaps::rows_at(std::byte* at, int64_t num_tokens,
                        const std::vector<int64_t>& layers) const {
  return Tensor(at, dtype_, {num_tokens, width_of(layers)});
}

const AuxStates* GpuTaps::states_of(int64_t num_tokens) {
  const std::vector<int64_t>& own = layers_[static_cast<size_t>(stage_)];
  if (own.empty()) return nullptr;
  states_.layers = own;
  states_.rows = Tensor(row_ids_.data(), DType::kInt32, {num_tokens});
  states_.has_all_rows = true;
  states_.out = rows_at(handed_out_.data(), num_tokens, own);
  return &states_;
}

void GpuTaps::send(DeviceStream& gpu, int64_t num_tokens) {
  const std::vector<int64_t>& own = layers_[static_cast<size_t>(stage_)];
  if (own.empty()) return;
  std::byte* const to = kept_.data() + next_slot_ * handed_out_.size();
  next_slot_ = (next_slot_ + 1) % num_slots_;
  const size_t bytes = bytes_of(num_tokens, own);
  links_.taps_to_first->await_taken(gpu, num_slots_ - 1);
  gpu.copy_on_device(to, handed_out_.data(), bytes);
  links_.taps_to_first->offer(gpu, to, bytes);
}

void GpuTaps::hold(DeviceStream& gpu, Step step, const int64_t* slots) {
  check(stage_ == 0 && has_room(), "the first stage keeps the steps that are in flight");
  step.slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % num_slots_;
  const size_t bytes = bytes_of(step.num_tokens, layers_.front());
  if (bytes > 0) {
    gpu.copy_on_device(kept_.data() + step.slot * handed_out_.size(), handed_out_.data(), bytes);
  }
  auto* const kept_slots =
      reinterpret_cast<int64_t*>(slots_.data()) + step.slot * static_cast<size_t>(max_tokens_);
  gpu.copy_on_device(kept_slots, slots, static_cast<size_t>(step.num_tokens) * sizeof(int64_t));
  step.slots = Tensor(kept_slots, DType::kInt64, {step.num_tokens});
  held_.push_back(std::move(step));
}

GpuTaps::Step GpuTaps::take(DeviceStream& gpu, Stream& stream, const Tensor& states) {
  check(!held_.empty(), "what a head sees of a step is taken once");
  Step step = std::move(held_.front());
  held_.pop_front();
  const Tensor rows(row_ids_.data(), DType::kInt32, {step.num_tokens});
  int64_t column = 0;
  for (size_t stage = 0; stage < layers_.size(); ++stage) {
    const std::vector<int64_t>& layers = layers_[stage];
    if (layers.empty()) continue;
    std::byte* from = kept_.data() + step.slot * handed_out_.size();
    if (stage > 0) {
      from = received_.data();
      links_.taps_from[stage]->take(gpu, from, bytes_of(step.num_tokens, layers));
    }
    const int64_t width = width_of(layers);
    ops::gather_rows(stream, rows_at(from, step.num_tokens, layers), rows,
                     states.columns(column, column + width));
    column += width;
  }
  return step;
}

}  // namespace quire
