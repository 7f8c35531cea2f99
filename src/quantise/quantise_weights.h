#pragma once
// Carries a plan out: reads a checkpoint's weights, rounds them, writes them. One matrix is in
// memory at a time, rounded; with a calibration one layer, and a matrix in float32.
//
// Errors: Error, naming the layer, where numbers are not finite; naming the file, where it cannot
// be written; WorkEnded where the loops throw it. Thread safety: one thread at a time, which runs
// the loops.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "quantise/calibration.h"
#include "quantise/endable_loops.h"
#include "quantise/quantise_plan.h"
#include "quantise/rounded_matrix.h"

namespace quire {

struct WeightsToQuantise {
  const Checkpoint& checkpoint;
  const ModelConfig& config;
  const QuantisePlan& plan;
  DType dense_dtype;  // of matrices that were stored quantised and are kept
};

// Called with the number of the checkpoint's bytes that were done since the last call.
using QuantiseProgress = std::function<void(size_t bytes)>;

struct WrittenWeights {
  size_t bytes = 0;
  int num_shards = 0;
  double squared_error = 0;  // of the rounded matrices, over the sum of their squares
  // With a calibration: the same of the outputs that the layers' matrices have for its text, by
  // some of the outputs of each.
  double squared_output_error = 0;
};

// Writes the weights into `folder`. `calibration` may be null: each number is then rounded to the
// nearest.
WrittenWeights quantise_weights(const WeightsToQuantise& weights,
                                const std::filesystem::path& folder, Calibration* calibration,
                                const EndableLoops& loops, const QuantiseProgress& progress);

}  // namespace quire
