// How an engine drives a model that is cut into stages.
#include <algorithm>

#include "base/ceil_div.h"
#include "engine/engine_core.h"

namespace quire {

// One step for each stage. With async scheduling one more waits at the first stage, so that no
// stage waits for the scheduler.
size_t EngineCore::max_steps_in_flight() const {
  return num_stages() + (setup_.config.async_scheduling ? 1 : 0);
}

// A decoding sequence is in one of as many steps as there are stages, and waits for all of them.
double EngineCore::target_step_s() const {
  return setup_.config.target_step_s / setup_.config.pipeline_parallel_size;
}

int64_t EngineCore::num_decoding_in_step() const {
  return ceil_div(scheduler_.stats().num_decoding, setup_.config.pipeline_parallel_size);
}

}  // namespace quire
