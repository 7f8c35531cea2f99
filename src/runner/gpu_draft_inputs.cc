#include "runner/gpu_draft_inputs.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "runner/gpu_sizes.h"

namespace quire {
namespace {

GpuDraftArrays lay_out_drafts(ArrayLayout& layout, std::span<const StepShape> shapes) {
  GpuDraftArrays arrays;
  for (StepShape shape : shapes) {
    const bool is_first = arrays.passes.empty();
    if (!is_first) shape.table_width = 0;
    arrays.passes.push_back(lay_out_step(layout, shape));
    if (!is_first) arrays.passes.back().block_tables = arrays.passes.front().block_tables;
  }
  arrays.known_rows = layout.take<int32_t>(shapes.front().num_tokens);
  return arrays;
}

size_t bytes_of_passes(std::span<const StepShape> shapes) {
  ArrayLayout layout(nullptr);
  lay_out_drafts(layout, shapes);
  return layout.used();
}

// The largest shapes of a first pass and of those that follow.
std::vector<StepShape> largest_shapes(const GpuDraftSizes& sizes) {
  std::vector<StepShape> shapes = {sizes.largest_step};
  StepShape later = sizes.largest_step;
  later.num_tokens = later.num_seqs = later.num_logits = sizes.max_drafting;
  while (std::ssize(shapes) < sizes.max_passes) shapes.push_back(later);
  return shapes;
}

}  // namespace

GpuDraftSizes gpu_draft_sizes(const ops::CudaKernels& kernels, const RunnerOptions& options) {
  check(options.draft.has_value(), "a drafter has a model");
  RunnerOptions alone = options;
  alone.model = options.draft->model;
  alone.model.size = options.model.size;
  alone.draft.reset();
  alone.max_loras = 0;
  const GpuSizes of_steps = gpu_sizes(kernels, alone);
  GpuDraftSizes sizes;
  sizes.max_drafting = max_drafting(options);
  sizes.max_passes = options.max_draft_tokens;
  sizes.largest_step = of_steps.largest_step;
  // Penalties and biases are left out of drafts.
  sizes.largest_step.adjusts_logits = false;
  sizes.largest_step.num_biases = 0;
  sizes.largest_step.num_logits = sizes.max_drafting;
  sizes.attention_scratch = of_steps.attention_scratch;
  // A head is not one of the models that a kernel of a whole step is for.
  if (!alone.model.eagle) sizes.decoder_scratch = of_steps.decoder_scratch;
  sizes.alignment = of_steps.alignment;
  sizes.inputs = static_cast<int64_t>(bytes_of_passes(largest_shapes(sizes)));
  return sizes;
}

int64_t max_drafting(const RunnerOptions& options) {
  return std::max<int64_t>(1, std::min(options.max_num_seqs, options.max_drafts));
}

int64_t draft_ids_stride(int64_t num_drafting) {
  constexpr int64_t kIdsPerWord = 4;  // kernels write at addresses of 16 bytes
  return round_up(num_drafting, kIdsPerWord);
}

int64_t num_draft_ids(const RunnerOptions& options) {
  if (!options.draft) return 0;
  return draft_ids_stride(max_drafting(options)) * options.max_draft_tokens;
}

GpuDraftInputs::GpuDraftInputs(DeviceLibrary& library, const Device& device,
                               const GpuDraftSizes& sizes)
    : device_(static_cast<size_t>(sizes.inputs), device) {
  for (Place& place : ring_) {
    place.memory = library.allocate_pinned(static_cast<size_t>(sizes.inputs));
  }
}

GpuDraftArrays GpuDraftInputs::next(std::span<const StepShape> shapes) {
  check(bytes_of_passes(shapes) <= device_.size(), "passes' arrays fit where the plan put them");
  check(std::ranges::all_of(
            shapes,
            [&](const StepShape& shape) { return shape.table_width == shapes[0].table_width; }),
        "passes share block tables");
  current_ = (current_ + 1) % kRing;
  Place& place = ring_[current_];
  if (place.copied) place.copied->wait();
  place.copied.reset();
  shapes_.assign(shapes.begin(), shapes.end());
  ArrayLayout layout(place.memory->data());
  return lay_out_drafts(layout, shapes_);
}

GpuDraftArrays GpuDraftInputs::upload(DeviceStream& stream) {
  Place& place = ring_[current_];
  ArrayLayout layout(device_.data());
  GpuDraftArrays arrays = lay_out_drafts(layout, shapes_);
  stream.copy_to_device(device_.data(), place.memory->data(), layout.used());
  place.copied = stream.record(EventWait::kSleep);
  return arrays;
}

}  // namespace quire
