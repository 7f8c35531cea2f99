#pragma once
// Executes a plan: reads a checkpoint's weights, rounds them, writes them. Only one matrix is in
// memory at a time, or with a calibration one layer.
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
  const RoundingTarget& target;
};

// Called with the number of the checkpoint's bytes that were done since the last call.
using QuantiseProgress = std::function<void(size_t bytes)>;

struct WrittenWeights {
  size_t bytes = 0;
  int num_shards = 0;
  double squared_error = 0;  // of the rounded matrices, over the sum of their squares
};

// Writes the weights into `folder`. `calibration` may be null: each number is then rounded to the
// nearest.
WrittenWeights quantise_weights(const WeightsToQuantise& weights,
                                const std::filesystem::path& folder, Calibration* calibration,
                                const EndableLoops& loops, const QuantiseProgress& progress);

}  // namespace quire
