#pragma once
// How many of a model's layers each pipeline stage has.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <vector>

#include "models/model.h"

namespace quire {

// Chosen so that the slowest stage is as fast as possible. A step of a few sequences takes about as
// long as reading the weights of its matrix products, so a stage's time is counted as their bytes,
// from shapes and formats:
//
//   n layers:                    n * L, where L is the bytes of a layer's weights
//   n layers, the output layer:  n * L + O, where O is the bytes of the output layer's weights
//
// On GPUs O is 0.31 times these bytes: a layer's attention, norms and sums take longer there beside
// its products, and prompts, which are computed in fewer steps, do not use the output layer.
//
// The embedding counts as nothing, because a step reads only a few rows of it. Attention is the
// same in every layer. The last stage has the largest n_P for which
//
//   max(ceil((N - n_P) / (P - 1)) * L,  n_P * L + O)
//
// is least, for N layers and P stages. The other stages share the rest evenly; if it does not
// divide, the first of these have one layer less, because the very first has the embedding's table.
// `num_stages` is at most the number of layers.
//
// Where a drafter is on the first stage, that one's time is n_1 * L + D, where D is the bytes that
// its passes read. Then n_1 is the least that makes the slowest stage as fast as possible, and the
// stages between the first and the last share the rest evenly.
//
// `draft_bytes`: D. Throws Error where the model is not supported.
std::vector<int64_t> balanced_stage_layers(const ModelOptions& model, int num_stages,
                                           double draft_bytes = 0);

// The same for given bytes of a layer and of the output layer.
std::vector<int64_t> balanced_stage_layers(int64_t num_layers, int num_stages, double layer_bytes,
                                           double output_bytes, double draft_bytes = 0);

// Bytes that so many passes of a drafter read: a smaller model, or a head for `target`. Throws
// Error where it is not supported.
double bytes_of_drafts(const ModelOptions& drafter, const ModelOptions& target, int num_passes);

}  // namespace quire
