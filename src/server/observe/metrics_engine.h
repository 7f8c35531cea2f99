#pragma once
// What the metrics say of the engine: its sequences, its cache, its steps, and what only some
// engines have.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <optional>
#include <vector>

#include "quire/llm_engine.h"
#include "server/observe/metrics.h"
#include "server/observe/metrics_buckets.h"
#include "server/observe/metrics_registry.h"

namespace quire::server {

class EngineMetrics {
 public:
  // Both outlive it.
  EngineMetrics(const MetricsConfig& config, MetricsRegistry& registry);

  // admission_queue_length: requests that the engine has not been given yet.
  void update(const EngineStats& engine, int64_t admission_queue_length);
  // Adds the families that the registry does not have.
  void append(std::vector<prometheus::MetricFamily>& families) const;

 private:
  using Counter = prometheus::Counter;
  using Gauge = prometheus::Gauge;
  using Histogram = prometheus::Histogram;

  struct DraftCounters {
    Counter* drafts = nullptr;
    Counter* tokens = nullptr;
    Counter* accepted = nullptr;
    std::vector<Counter*> accepted_per_pos{};
  };
  struct AdapterCounters {
    Counter* loads = nullptr;
    Counter* evictions = nullptr;
    Counter* waits = nullptr;
    LoraStats last{};      // what the engine said
    double updated_s = 0;  // when, since the epoch
  };

  DraftCounters draft_counters();
  AdapterCounters adapter_counters();
  static void update_drafts(const DraftCounters& counters, const SpeculativeStats& stats);
  static void update_adapters(AdapterCounters& counters, const LoraStats& stats);
  // The engine counts steps and tokens, not the tokens of each step: their mean since the last
  // update stands for all of these steps. Count and sum are exact.
  void observe_steps(int64_t steps, int64_t tokens);
  prometheus::MetricFamily adapters_info() const;

  const MetricsConfig& config_;
  MetricsRegistry& registry_;
  int64_t last_steps_ = 0;
  int64_t last_tokens_ = 0;
  const std::vector<double> iteration_boundaries_ = iteration_token_buckets();
  std::vector<double> increments_ = std::vector<double>(iteration_boundaries_.size() + 1, 0.0);

  Gauge& running_ =
      registry_.gauge("num_requests_running", "Requests that the engine is computing.");
  Gauge& waiting_ = registry_.gauge("num_requests_waiting",
                                    "Requests that wait, in the engine's queue or in admission's.");
  Gauge& kv_usage_ =
      registry_.gauge("kv_cache_usage_perc", "Share of KV blocks in use; 1 is all of them.");
  Counter& cache_queries_ = registry_.counter("prefix_cache_queries_total",
                                              "Prompt tokens looked up in the prefix cache.");
  Counter& cache_hits_ =
      registry_.counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  Counter& preemptions_ = registry_.counter(
      "num_preemptions_total", "Times that a running request gave its KV blocks up for another.");
  Counter& prompt_total_ = registry_.counter(
      "prompt_tokens_total", "Prompt tokens processed, computed or from the prefix cache.");
  Counter& generation_total_ =
      registry_.counter("generation_tokens_total", "Output tokens generated.");
  Histogram& iteration_ =
      registry_.histogram("iteration_tokens_total",
                          "Tokens computed in an engine step; a bucket counts the mean "
                          "of the steps between two updates.",
                          iteration_boundaries_);
  std::optional<DraftCounters> drafts_;      // only with speculation, as in vLLM
  std::optional<AdapterCounters> adapters_;  // only with adapters, as in vLLM
  EngineStats stages_;                       // of several stages: what the engine said
  Counter* node_bytes_ = nullptr;            // only with several nodes
};

}  // namespace quire::server
