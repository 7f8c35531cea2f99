#include "quire/benchmark.h"

#include "engine/engine_setup.h"
#include "runner/machine.h"
#include "runner/model_support.h"

namespace quire {

MachineLimits measure_machine(const EngineConfig& config) {
  const EngineSetup setup = set_up_engine(config);
  return measure_machine(setup.config.threads, setup.executor.runner.model.dtype);
}

ModelCost model_cost(const EngineConfig& config) {
  const EngineSetup setup = set_up_engine(config);
  return cost_of(setup.model, setup.executor.runner.model.dtype);
}

}  // namespace quire
