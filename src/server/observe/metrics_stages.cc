#include "server/observe/metrics_stages.h"

#include <algorithm>

namespace quire::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

double idle_ratio(const StageStats& stage, const EngineStats& engine) {
  const double active_s = engine.prefill_s + engine.decode_s;
  return active_s > 0 ? std::clamp(1 - stage.busy_s / active_s, 0.0, 1.0) : 0;
}

double step_s(const StageStats& stage) {
  return stage.num_steps > 0 ? stage.busy_s / static_cast<double>(stage.num_steps) : 0;
}

}  // namespace

std::vector<MetricFamily> stage_families(const std::string& prefix,
                                         const prometheus::Labels& labels, int num_stages,
                                         const EngineStats& engine) {
  MetricFamily idle{prefix + "pipeline_stage_idle_ratio",
                    "Share of the time with steps in flight in which a stage had nothing to do.",
                    MetricType::Gauge,
                    {}};
  MetricFamily step{prefix + "pipeline_stage_step_seconds",
                    "Mean time that a stage works on a step.",
                    MetricType::Gauge,
                    {}};
  MetricFamily busy{prefix + "pipeline_stage_busy_seconds_total",
                    "Time in which a stage worked on steps.",
                    MetricType::Counter,
                    {}};
  for (size_t i = 0; i < static_cast<size_t>(num_stages); ++i) {
    const StageStats stage = i < engine.stages.size() ? engine.stages[i] : StageStats();
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    metric.label.push_back({"stage", std::to_string(i)});
    metric.gauge.value = idle_ratio(stage, engine);
    idle.metric.push_back(metric);
    metric.gauge.value = step_s(stage);
    step.metric.push_back(metric);
    metric.counter.value = stage.busy_s;
    busy.metric.push_back(metric);
  }
  return {idle, step, busy};
}

}  // namespace quire::server
