#include "quire/benchmark.h"

#include "engine/engine_setup.h"
#include "runner/machine.h"
#include "runner/model_support.h"

namespace quire {

MachineLimits measure_machine(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  if (setup.on_gpu) return {};
  return measure_machine(setup.threads, setup.isa, setup.dtype);
}

ModelCost model_cost(const EngineConfig& config) {
  const ComputeSetup setup = set_up_compute(config);
  return cost_of(setup.model, setup.dtype);
}

}  // namespace quire
