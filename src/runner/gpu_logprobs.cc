#include "runner/gpu_logprobs.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"

namespace quire {
namespace {

template <typename T>
T* word(std::byte* results, int64_t index) {
  return reinterpret_cast<T*>(results) + index;
}

template <typename T>
const T* word(const std::byte* results, int64_t index) {
  return reinterpret_cast<const T*>(results) + index;
}

}  // namespace

void GpuLogprobs::find(const ops::CudaKernels& kernels, DeviceStream& stream, const Tensor& logits,
                       const int32_t* token_ids, const LogprobsLayout& layout, void* scratch,
                       std::byte* pinned) {
  std::byte* const results = results_.data();
  kernels.logprobs(stream.cuda(), {.logits = logits.data<float>(),
                                   .stride = logits.row_stride(),
                                   .rows = layout.rows,
                                   .vocab = logits.dim(1),
                                   .token_ids = token_ids,
                                   .num_top = layout.num_top,
                                   .token_logprobs = word<float>(results, 0),
                                   .token_ranks = word<int32_t>(results, layout.ranks()),
                                   .top_ids = word<int32_t>(results, layout.top_ids()),
                                   .top_logprobs = word<float>(results, layout.top_logprobs()),
                                   .scratch = scratch});
  stream.copy_to_host(pinned, results, static_cast<size_t>(layout.bytes()));
}

TokenLogprobs GpuLogprobs::read(const std::byte* pinned, const LogprobsLayout& layout, int64_t row,
                                int32_t token_id, int num_top) {
  TokenLogprobs found;
  found.token_ids.push_back(token_id);
  found.logprobs.push_back(*word<float>(pinned, row));
  found.ranks.push_back(*word<int32_t>(pinned, layout.ranks() + row));
  for (int i = 0; i < num_top; ++i) {
    const int64_t at = row * layout.num_top + i;
    const int32_t id = *word<int32_t>(pinned, layout.top_ids() + at);
    if (id < 0) break;
    found.token_ids.push_back(id);
    found.logprobs.push_back(*word<float>(pinned, layout.top_logprobs() + at));
    found.ranks.push_back(i + 1);
  }
  return found;
}

PromptIds::Arrays PromptIds::lay_out(ArrayLayout& layout, int64_t max_rows) {
  Arrays arrays;
  arrays.rows = layout.take<int32_t>(max_rows);
  arrays.targets = layout.take<int32_t>(max_rows);
  arrays.items = layout.take<ops::LoraItem>(ceil_div<int64_t>(max_rows, ops::kLoraItemRows));
  arrays.num_items = layout.take<int32_t>(1);
  return arrays;
}

PromptIds::Arrays PromptIds::lay_out_at(std::byte* base, int64_t max_rows) {
  ArrayLayout layout(base);
  return lay_out(layout, max_rows);
}

PromptIds::PromptIds(DeviceLibrary& library, const Device& device, int64_t max_rows)
    : device_(bytes(max_rows), device),
      on_device_(lay_out_at(device_.data(), max_rows)),
      pinned_(library.allocate_pinned(bytes(max_rows))),
      on_host_(lay_out_at(pinned_->data(), max_rows)) {}

size_t PromptIds::bytes(int64_t max_rows) {
  ArrayLayout layout(nullptr);
  lay_out(layout, max_rows);
  return layout.used();
}

void PromptIds::upload(DeviceStream& stream, const PromptRows& prompt, int32_t lora_slot) {
  stream.synchronize();
  const auto num_rows = static_cast<int32_t>(prompt.targets.size());
  std::iota(on_host_.rows, on_host_.rows + num_rows, static_cast<int32_t>(prompt.first_row));
  std::ranges::copy(prompt.targets, on_host_.targets);
  int32_t num_items = 0;
  for (int32_t first = 0; first < num_rows; first += ops::kLoraItemRows) {
    const int32_t count = std::min(ops::kLoraItemRows, num_rows - first);
    on_host_.items[num_items++] = {lora_slot, first, count, 0};
  }
  *on_host_.num_items = num_items;
  stream.copy_to_device(device_.data(), pinned_->data(), device_.size());
}

ops::CudaLoraRows PromptIds::lora_rows(const PromptRows& prompt) const {
  const auto num_rows = static_cast<int64_t>(prompt.targets.size());
  return {.items = on_device_.items,
          .num_items = on_device_.num_items,
          .max_items = ceil_div<int64_t>(num_rows, ops::kLoraItemRows),
          .rows = on_device_.rows,
          .first_row = prompt.first_row,
          .num_rows = num_rows};
}

}  // namespace quire
