#pragma once
// Windows of a calibration text that run through a layer at once, and their states between layers.
//
// Thread safety: plain values; free functions without state.
#include <cstdint>
#include <vector>

#include "core/forward_batch.h"

namespace quire {

// Tokens of each window; a window is a text of its own.
using CalibrationWindows = std::vector<std::vector<int32_t>>;

struct CalibrationStep {
  std::vector<int32_t> ids;          // of the windows, one after another
  std::vector<int32_t> positions;    // as ids
  std::vector<int64_t> slots;        // as ids; every window begins with a block of its own
  std::vector<int32_t> query_start;  // [windows + 1]
  std::vector<int32_t> lengths;      // of the windows
  std::vector<int32_t> blocks;       // [windows, blocks_each]
  int64_t blocks_each = 0;           // of the longest window
  std::vector<int32_t> logits_rows;  // one, as a pass has to have logits
  // Before the layer, [tokens, hidden size].
  std::vector<float> hidden;
  std::vector<float> residual;

  int64_t num_tokens() const { return std::ssize(ids); }
  int64_t num_windows() const { return std::ssize(lengths); }
  int64_t num_blocks() const { return num_windows() * blocks_each; }
  // Views of the step's arrays.
  ForwardBatch batch();
};

// Puts windows that follow each other into steps of at most `max_tokens` tokens, a longer window
// into one of its own. Each has a token. Blocks of a cache have `block_size` tokens.
std::vector<CalibrationStep> calibration_steps(const CalibrationWindows& windows,
                                               int64_t max_tokens, int64_t block_size);

}  // namespace quire
