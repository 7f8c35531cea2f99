#include "server/observe/metrics_engine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>

#include "server/observe/metrics_stages.h"

namespace quire::server {
namespace {

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ","));
}

}  // namespace

EngineMetrics::EngineMetrics(const MetricsConfig& config, MetricsRegistry& registry)
    : config_(config), registry_(registry) {
  if (config_.num_speculative_tokens > 0) drafts_ = draft_counters();
  if (config_.max_loras > 0) adapters_ = adapter_counters();
  if (config_.num_nodes > 1) {
    node_bytes_ =
        &registry_.counter("node_bytes_sent_total", "Bytes that node 0 sent to the other nodes.");
  }
}

void EngineMetrics::update(const EngineStats& engine, int64_t admission_queue_length) {
  // Of vLLM's two states a request that admission holds back is waiting.
  waiting_.Set(static_cast<double>(engine.num_waiting + admission_queue_length));
  running_.Set(static_cast<double>(engine.num_running));
  kv_usage_.Set(engine.kv_cache_usage);
  raise_to(cache_queries_, static_cast<double>(engine.prefix_cache_queries));
  raise_to(cache_hits_, static_cast<double>(engine.prefix_cache_hits));
  raise_to(preemptions_, static_cast<double>(engine.num_preemptions));
  // vLLM's count includes what was found in the cache.
  raise_to(prompt_total_, static_cast<double>(engine.prompt_tokens + engine.prefix_cache_hits));
  raise_to(generation_total_, static_cast<double>(engine.generation_tokens));
  if (drafts_) update_drafts(*drafts_, engine.speculative);
  if (adapters_) update_adapters(*adapters_, engine.lora);
  if (config_.num_stages > 1) stages_ = engine;
  if (node_bytes_ != nullptr) {
    raise_to(*node_bytes_, static_cast<double>(engine.node_bytes_sent));
  }
  const int64_t computed = engine.prompt_tokens + engine.generation_tokens;
  const int64_t steps = engine.num_steps - last_steps_;
  if (steps <= 0) return;
  observe_steps(steps, computed - last_tokens_);
  last_steps_ = engine.num_steps;
  last_tokens_ = computed;
}

void EngineMetrics::append(std::vector<prometheus::MetricFamily>& families) const {
  if (adapters_) families.push_back(adapters_info());
  if (config_.num_stages == 1) return;
  std::ranges::move(
      stage_families(registry_.prefix(), registry_.labels(), config_.num_stages, stages_),
      std::back_inserter(families));
}

EngineMetrics::DraftCounters EngineMetrics::draft_counters() {
  DraftCounters counters;
  counters.drafts = &registry_.counter("spec_decode_num_drafts_total",
                                       "Times that a step verified draft tokens of a sequence.");
  counters.tokens =
      &registry_.counter("spec_decode_num_draft_tokens_total", "Draft tokens that steps verified.");
  counters.accepted =
      &registry_.counter("spec_decode_num_accepted_tokens_total", "Draft tokens that were kept.");
  prometheus::Family<Counter>& per_pos =
      registry_.counter_family("spec_decode_num_accepted_tokens_per_pos_total",
                               "Draft tokens that were kept, by their position in the draft.");
  for (int i = 0; i < config_.num_speculative_tokens; ++i) {
    counters.accepted_per_pos.push_back(
        &per_pos.Add(registry_.labels_and("position", std::to_string(i))));
  }
  return counters;
}

void EngineMetrics::update_drafts(const DraftCounters& counters, const SpeculativeStats& stats) {
  raise_to(*counters.drafts, static_cast<double>(stats.num_drafts));
  raise_to(*counters.tokens, static_cast<double>(stats.num_draft_tokens));
  raise_to(*counters.accepted, static_cast<double>(stats.num_accepted_tokens));
  for (size_t i = 0; i < counters.accepted_per_pos.size(); ++i) {
    raise_to(*counters.accepted_per_pos[i],
             static_cast<double>(stats.num_accepted_tokens_per_pos.at(i)));
  }
}

EngineMetrics::AdapterCounters EngineMetrics::adapter_counters() {
  AdapterCounters counters;
  counters.loads = &registry_.counter(
      "lora_loads_total", "Times that the weights of an adapter were read into host memory.");
  counters.evictions = &registry_.counter(
      "lora_evictions_total",
      "Times that the weights of an adapter left host memory for those of others.");
  counters.waits = &registry_.counter(
      "lora_waits_total", "Sequences that waited because max_loras other adapters ran.");
  return counters;
}

void EngineMetrics::update_adapters(AdapterCounters& counters, const LoraStats& stats) {
  raise_to(*counters.loads, static_cast<double>(stats.num_loads));
  raise_to(*counters.evictions, static_cast<double>(stats.num_evictions));
  raise_to(*counters.waits, static_cast<double>(stats.num_waits));
  counters.last = stats;
  counters.updated_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As vLLM has it: what counts are its labels, and its value is when that was.
prometheus::MetricFamily EngineMetrics::adapters_info() const {
  prometheus::ClientMetric metric;
  metric.label = {{"max_lora", std::to_string(config_.max_loras)},
                  {"running_lora_adapters", joined(adapters_->last.running)},
                  {"waiting_lora_adapters", joined(adapters_->last.waiting)}};
  metric.gauge.value = adapters_->updated_s;
  return {registry_.prefixed("lora_requests_info"),
          "The adapters of running and of waiting sequences, separated by commas; the value is "
          "the time.",
          prometheus::MetricType::Gauge,
          {metric}};
}

void EngineMetrics::observe_steps(int64_t steps, int64_t tokens) {
  const double mean = static_cast<double>(tokens) / static_cast<double>(steps);
  const auto bucket =
      std::lower_bound(iteration_boundaries_.begin(), iteration_boundaries_.end(), mean);
  double& increment = increments_[static_cast<size_t>(bucket - iteration_boundaries_.begin())];
  increment = static_cast<double>(steps);
  iteration_.ObserveMultiple(increments_, static_cast<double>(tokens));
  increment = 0;
}

}  // namespace quire::server
