#include "runner/gpu_logprobs.h"

#include <algorithm>
#include <numeric>

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

PromptIds::PromptIds(DeviceLibrary& library, const Device& device, int64_t max_rows)
    : targets_at_(bytes(max_rows) / 2),
      device_(bytes(max_rows), device),
      pinned_(library.allocate_pinned(bytes(max_rows))) {}

size_t PromptIds::bytes(int64_t max_rows) {
  return 2 * align_up(static_cast<size_t>(max_rows) * sizeof(int32_t));
}

void PromptIds::upload(DeviceStream& stream, const PromptRows& prompt) {
  stream.synchronize();
  auto* const rows = word<int32_t>(pinned_->data(), 0);
  std::iota(rows, rows + prompt.targets.size(), static_cast<int32_t>(prompt.first_row));
  std::ranges::copy(prompt.targets, word<int32_t>(pinned_->data() + targets_at_, 0));
  stream.copy_to_device(device_.data(), pinned_->data(), device_.size());
}

int32_t* PromptIds::rows() const {
  return word<int32_t>(device_.data(), 0);
}

int32_t* PromptIds::targets() const {
  return word<int32_t>(device_.data() + targets_at_, 0);
}

}  // namespace quire
