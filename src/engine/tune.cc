#include "quire/tune.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/device_choice.h"
#include "engine/engine_setup.h"
#include "quire/engine_limits.h"
#include "runner/gpu_algorithms.h"
#include "runner/linear_tuning.h"

namespace quire {
namespace {

void check_range(std::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw Error(fmt::format("--{} is {}; expected 1 to {}.", name, value, most));
}

void check_options(const EngineConfig& config, const TuneOptions& options) {
  for (const int64_t rows : options.rows) check_range("rows", rows, kMaxNumBatchedTokens);
  check_range("algorithms", options.max_algorithms, kMaxTunedAlgorithms);
  check_range("repeats", options.repeats, kMaxTuneRepeats);
  check_range("tensor-parallel-size", config.tensor_parallel_size, kMaxTensorParallelSize);
}

}  // namespace

TuneResult tune(const EngineConfig& config, const TuneOptions& options,
                const TuneCallback& on_progress) {
  check_options(config, options);
  // One GPU times a rank's products, whatever the number of ranks.
  EngineConfig one_rank = config;
  one_rank.tensor_parallel_size = 1;
  one_rank.pipeline_parallel_size = 1;
  one_rank.device = "cuda";
  const DeviceChoice choice = choose_gpus(one_rank, "Matrix products are timed on a GPU");
  const ComputeSetup setup = set_up_compute(one_rank);
  TuningRequest request;
  request.model = setup.model;
  request.model.size = config.tensor_parallel_size;
  request.model.max_model_len = setup.model.config.max_model_len();
  request.max_step_tokens = config.max_num_batched_tokens;
  request.max_logits_rows = std::min(config.max_num_seqs, config.max_num_batched_tokens);
  request.rows = options.rows;
  if (!config.linear_algorithms.empty()) {
    request.known = ops::read_linear_algorithms(config.linear_algorithms);
  }
  return tune_products(*choice.library, request, options, on_progress);
}

}  // namespace quire
