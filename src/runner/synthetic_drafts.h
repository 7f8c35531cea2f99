#pragma once
// For measurements (RunnerOptions::synthetic_acceptance): noise, and not what was sampled, decides
// which drafts stay.
//
// Thread safety: free functions.
#include <cstddef>
#include <cstdint>
#include <span>

#include "runner/sequence_table.h"

namespace quire {

// Whether a draft stays that is the token behind the first `num_tokens` of a sequence, those before
// it having stayed: with probability `rate`, and the same on every rank.
bool keeps_synthetically(double rate, const SequenceState& state, size_t num_tokens);

// The token in the place of a draft that does not stay: what was sampled, or another one where that
// is the draft.
constexpr int32_t other_than(int32_t draft, int32_t sampled) {
  if (sampled != draft) return sampled;
  return draft == 0 ? 1 : draft - 1;
}

// Makes of what was sampled behind each token of a verify chunk what stays of its drafts, which are
// the newest tokens of `state`: sampled.size() - 1 of them.
void keep_synthetically(double rate, const SequenceState& state, std::span<int32_t> sampled);

}  // namespace quire
