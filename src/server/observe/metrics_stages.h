#pragma once
// What the metrics say of the stages of a pipeline.
//
// Thread safety: a pure function.
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <string>
#include <vector>

#include "quire/llm_engine.h"

namespace quire::server {

// One metric a stage in each family, 0 for stages that the engine has said nothing of. `prefix` is
// in front of the names, `labels` are those of every metric.
std::vector<prometheus::MetricFamily> stage_families(const std::string& prefix,
                                                     const prometheus::Labels& labels,
                                                     int num_stages, const EngineStats& engine);

}  // namespace quire::server
