#include "quire/benchmark.h"

#include "base/thread_pool.h"
#include "core/stream.h"
#include "engine/engine_setup.h"
#include "ops/machine_ceilings.h"
#include "runner/model_support.h"

namespace quire {

MachineLimits measure_machine(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  if (setup.on_gpu) return {};
  ThreadPool pool(setup.threads);
  Stream stream(pool, setup.isa);
  const bool in_integers = setup.quantise_bits != 0 && setup.dtype != DType::kFloat32;
  const ops::MachineCeilings ceilings =
      ops::measure_ceilings(stream, in_integers ? DType::kUInt8 : setup.dtype);
  return {ceilings.read_gb_s, ceilings.peak_gflops};
}

ModelCost model_cost(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  return cost_of(setup.model, setup.dtype, setup.kv_cache_dtype, setup.quantise_bits);
}

}  // namespace quire
