#pragma once
// Carries a plan out: reads a checkpoint's weights, rounds them, writes them. One matrix is in
// memory at a time, and with a calibration one layer.
//
// Errors: Error, naming the layer, where numbers are not finite; naming the file, where it cannot
// be written. Thread safety: the calling thread owns the pool.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "quantise/calibration.h"
#include "quantise/quantise_plan.h"
#include "quantise/rounded_matrix.h"

namespace quire {

struct WeightsToQuantise {
  const Checkpoint& checkpoint;
  const ModelConfig& config;
  const QuantisePlan& plan;
  const RoundingTarget& target;
};

// Called with the bytes of the checkpoint that are done; false: ends the work.
using QuantiseProgress = std::function<bool(int64_t done, int64_t total)>;

struct WrittenWeights {
  size_t bytes = 0;
  int num_shards = 0;
  double squared_error = 0;  // of the rounded matrices, over the sum of their squares
};

// Writes the weights into `folder`. `calibration` may be null: each number is then rounded to the
// nearest. Nothing where `progress` ended it.
std::optional<WrittenWeights> quantise_weights(const WeightsToQuantise& weights,
                                               const std::filesystem::path& folder,
                                               Calibration* calibration, ThreadPool& pool,
                                               const QuantiseProgress& progress);

}  // namespace quire
