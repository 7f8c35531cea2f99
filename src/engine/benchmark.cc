#include "quire/benchmark.h"

#include "base/thread_pool.h"
#include "core/stream.h"
#include "engine/engine_setup.h"
#include "ops/machine_ceilings.h"
#include "runner/model_support.h"

namespace quire {
namespace {

// The model's operations over the time of its products, if each kind of arithmetic runs at its own
// peak.
double measure_peak(Stream& stream, const ComputeSetup& setup) {
  const double integers = integer_share(setup.model);
  double seconds = 0;  // of 10^9 operations
  if (integers > 0) seconds += integers / ops::measure_peak_gflops(stream, DType::kUInt8);
  if (integers < 1) seconds += (1 - integers) / ops::measure_peak_gflops(stream, setup.model.dtype);
  return 1 / seconds;
}

}  // namespace

MachineLimits measure_machine(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  if (setup.on_gpu) return {};
  ThreadPool pool(setup.threads);
  Stream stream(pool, setup.isa);
  return {ops::measure_read_gb_s(stream), measure_peak(stream, setup)};
}

ModelCost model_cost(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  return cost_of(setup.model, setup.kv_cache_dtype);
}

}  // namespace quire
