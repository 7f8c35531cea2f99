#pragma once
// What a drafter takes of an engine's memory: a smaller model, or an EAGLE or EAGLE-3 head.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <set>
#include <string>

#include "runner/rank_runner.h"

namespace quire {

// Over the ranks of the first stage, in bytes.
struct DraftNeeds {
  int64_t weight_bytes = 0;
  std::set<std::string> formats;  // of the weights
  int64_t step_bytes = 0;         // activations, and what a head sees of steps in all stages
  int64_t bytes_per_block = 0;
  int64_t num_layers = 0;  // that have a part of the cache
};

// `options` have a draft. Throws Error where the draft's model is not supported.
DraftNeeds draft_needs(const RunnerOptions& options);

}  // namespace quire
