#pragma once
// Rotary position embedding (Su et al. 2021): the table of cosines and sines that ops/attention.h
// reads.
//
// Frequencies follow transformers' modeling_rope_utils.py (5.x) and are computed in float32, as
// there: an angle at position 100,000 shows the last bit of its frequency. Thread safety: const
// use is free.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/device.h"
#include "core/tensor.h"
#include "loader/model_config.h"

namespace quire {

struct RotaryFrequencies {
  std::vector<float> inv_freq;    // radians a position; rotary_dim / 2 of them
  double attention_factor = 1.0;  // multiplies cosines and sines
};

// Dynamic NTK takes its base for sequences of max_model_len, so that cached keys stay right as the
// sequence grows. If max_model_len is at most max_position_embeddings, that is the plain base, as
// in transformers.
//
// LongRoPE has factors for short and for long sequences. For the same reason max_model_len chooses,
// as in vLLM: above original_max_position_embeddings all sequences use the long ones. transformers
// chooses by each sequence's length, and rotates again when one grows beyond it; a smaller
// max_model_len gives transformers' results for short sequences.
RotaryFrequencies rotary_frequencies(const RopeConfig& rope, int64_t head_dim,
                                     int64_t max_position_embeddings, int64_t max_model_len);

class RotaryTable {
 public:
  RotaryTable(const ModelConfig& config, int64_t max_model_len, const Device& device = {});

  // float32[max_model_len, rotary_dim]: cosines, then sines.
  const Tensor& cos_sin() const { return cos_sin_; }
  size_t bytes() const { return buffer_.size(); }

 private:
  Buffer buffer_;
  Tensor cos_sin_;
};

}  // namespace quire
