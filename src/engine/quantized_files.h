#pragma once
// The quantization_config of a model that is written quantised.
//
// Thread safety: a free function of its arguments.
#include <nlohmann/json_fwd.hpp>

#include "quantise/quantise_plan.h"

namespace quire {

// Gives a model's config.json another quantization_config: the layers of the plan are stored as the
// targets say.
void set_quantization(nlohmann::ordered_json& config, const RoundingTargets& targets,
                      const QuantisePlan& plan);

}  // namespace quire
