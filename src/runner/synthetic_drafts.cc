#include "runner/synthetic_drafts.h"

#include <vector>

#include "ops/sampling_noise.h"

namespace quire {

bool keeps_synthetically(double rate, const SequenceState& state, size_t num_tokens) {
  // No token has this id, so that the noise is not that of sampling.
  constexpr uint32_t kNoId = 0xffffffffu;
  const ops::NoiseKey key = ops::noise_key(state.request->seed, state.index, num_tokens);
  return static_cast<double>(ops::noise_bits(key, kNoId)) < rate * 0x1p32;
}

void keep_synthetically(double rate, const SequenceState& state, std::span<int32_t> sampled) {
  const size_t num_drafts = sampled.size() - 1;
  const std::vector<int32_t>& output = state.output_token_ids;
  const size_t first_draft = output.size() - num_drafts;
  const size_t num_prompt = state.request->prompt_token_ids.size();
  for (size_t i = 0; i < num_drafts; ++i) {
    const int32_t draft = output[first_draft + i];
    if (!keeps_synthetically(rate, state, num_prompt + first_draft + i)) {
      sampled[i] = other_than(draft, sampled[i]);
      return;
    }
    sampled[i] = draft;
  }
}

}  // namespace quire
