#include "quantise/calibration_step.h"

#include <algorithm>
#include <span>

#include "base/ceil_div.h"
#include "base/check.h"

namespace quire {
namespace {

CalibrationStep step_of(std::span<const std::vector<int32_t>> windows, int64_t block_size) {
  CalibrationStep step;
  for (const auto& window : windows) {
    step.blocks_each = std::max(step.blocks_each, ceil_div(std::ssize(window), block_size));
  }
  step.query_start.push_back(0);
  for (const auto& window : windows) {
    const int64_t first_block = step.num_blocks();
    for (int64_t position = 0; position < std::ssize(window); ++position) {
      step.positions.push_back(static_cast<int32_t>(position));
      step.slots.push_back(first_block * block_size + position);
    }
    for (int64_t block = first_block; block < first_block + step.blocks_each; ++block) {
      step.blocks.push_back(static_cast<int32_t>(block));
    }
    step.ids.insert(step.ids.end(), window.begin(), window.end());
    step.lengths.push_back(static_cast<int32_t>(window.size()));
    step.query_start.push_back(static_cast<int32_t>(step.ids.size()));
  }
  step.logits_rows.push_back(step.query_start.back() - 1);
  return step;
}

template <typename T>
Tensor vector_of(std::vector<T>& values, DType dtype) {
  return {values.data(), dtype, {std::ssize(values)}};
}

}  // namespace

ForwardBatch CalibrationStep::batch() {
  const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
  return {.num_tokens = num_tokens(),
          .num_seqs = num_windows(),
          .max_query_len = longest,
          .max_context_len = longest,
          .token_ids = vector_of(ids, DType::kInt32),
          .positions = vector_of(positions, DType::kInt32),
          .slot_mapping = vector_of(slots, DType::kInt64),
          .query_start = vector_of(query_start, DType::kInt32),
          .context_lens = vector_of(lengths, DType::kInt32),
          .block_tables = Tensor(blocks.data(), DType::kInt32, {num_windows(), blocks_each}),
          .logits_rows = vector_of(logits_rows, DType::kInt32),
          .decode_items = Tensor(),
          .num_decode_items = Tensor()};
}

std::vector<CalibrationStep> calibration_steps(const CalibrationWindows& windows,
                                               int64_t max_tokens, int64_t block_size) {
  std::vector<CalibrationStep> steps;
  const std::span all(windows);
  for (size_t first = 0; first < all.size();) {
    size_t end = first;
    int64_t tokens = 0;
    do {
      check(!all[end].empty(), "a window has a token");
      tokens += std::ssize(all[end]);
      ++end;
    } while (end < all.size() && tokens + std::ssize(all[end]) <= max_tokens);
    steps.push_back(step_of(all.subspan(first, end - first), block_size));
    first = end;
  }
  return steps;
}

}  // namespace quire
