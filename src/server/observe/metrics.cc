#include "server/observe/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "quire/error.h"
#include "quire/version.h"
#include "server/observe/metrics_buckets.h"
#include "server/observe/metrics_engine.h"
#include "server/observe/metrics_gaps.h"
#include "server/observe/metrics_http.h"
#include "server/observe/metrics_process.h"
#include "server/observe/metrics_registry.h"
#include "server/observe/metrics_requests.h"

namespace quire::server {
namespace {

// Gauges that are always 1: what counts are their labels.
void add_infos(const MetricsConfig& config, MetricsRegistry& registry) {
  const prometheus::Labels cache = {
      {"engine", "0"},
      {"block_size", std::to_string(config.block_size)},
      {"cache_dtype", config.cache_dtype},
      {"enable_prefix_caching", config.enable_prefix_caching ? "True" : "False"},
      {"num_gpu_blocks", config.num_kv_blocks > 0 ? std::to_string(config.num_kv_blocks) : "None"}};
  registry.gauge_family("cache_config_info", "How the KV cache is set up; always 1.")
      .Add(cache)
      .Set(1);
  registry.gauge_family("build_info", "The version that runs; always 1.")
      .Add({{"version", std::string(version())}})
      .Set(1);
}

void append_gaps(const GapHistogram& gaps, const MetricsRegistry& registry,
                 std::vector<prometheus::MetricFamily>& families) {
  const GapHistogram::Snapshot snapshot = gaps.snapshot();
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : registry.labels()) metric.label.push_back({name, value});
  metric.histogram.sample_count = snapshot.cumulative_counts.back();
  metric.histogram.sample_sum = snapshot.sum;
  const std::vector<double>& boundaries = gaps.boundaries();
  for (size_t i = 0; i < boundaries.size(); ++i) {
    metric.histogram.bucket.push_back({snapshot.cumulative_counts[i], boundaries[i]});
  }
  const auto add = [&](std::string_view name, std::string help) {
    families.push_back(
        {registry.prefixed(name), std::move(help), prometheus::MetricType::Histogram, {metric}});
  };
  add("inter_token_latency_seconds", "Time between the output tokens of a request.");
  add("time_per_output_token_seconds", "vLLM's older name of inter_token_latency_seconds.");
}

}  // namespace

class ServerMetrics::Impl {
 public:
  explicit Impl(MetricsConfig config)
      : config_(std::move(config)),
        registry_(config_.prefix, {{"model_name", config_.model_name}, {"engine", "0"}}),
        gaps_(output_token_buckets()),
        engine_(config_, registry_),
        generations_(config_, registry_),
        http_(config_, registry_) {
    check(config_.max_model_len >= 1, "metrics: max_model_len must be at least 1");
    add_infos(config_, registry_);
  }

  void record(const RequestRecord& record) {
    http_.count(record);
    generations_.record(record);
  }

  void observe_inter_token(double seconds, int64_t tokens) {
    if (tokens <= 0) return;
    gaps_.observe(seconds / static_cast<double>(tokens), static_cast<uint64_t>(tokens));
  }

  void update(const EngineStats& engine, const ServerStats& server) {
    const std::lock_guard lock(update_mutex_);
    engine_.update(engine, server.admission_queue_length);
    http_.update(server);
  }

  std::string render() const {
    std::vector<prometheus::MetricFamily> families = registry_.collect();
    append_gaps(gaps_, registry_, families);
    {
      const std::lock_guard lock(update_mutex_);
      engine_.append(families);
    }
    append_process(families);
    const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
    std::sort(families.begin(), families.end(), by_name);
    for (prometheus::MetricFamily& family : families) {
      std::sort(family.metric.begin(), family.metric.end(),
                [](const auto& a, const auto& b) { return a.label < b.label; });
    }
    return prometheus::TextSerializer().Serialize(families);
  }

 private:
  const MetricsConfig config_;
  MetricsRegistry registry_;
  GapHistogram gaps_;
  mutable std::mutex update_mutex_;
  EngineMetrics engine_;
  GenerationMetrics generations_;
  HttpMetrics http_;
};

ServerMetrics::ServerMetrics(MetricsConfig config) {
  check_metrics_prefix(config.prefix);
  impl_ = std::make_unique<Impl>(std::move(config));
}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::record(const RequestRecord& record) {
  impl_->record(record);
}
void ServerMetrics::observe_inter_token(double seconds, int64_t tokens) {
  impl_->observe_inter_token(seconds, tokens);
}
void ServerMetrics::update(const EngineStats& engine, const ServerStats& server) {
  impl_->update(engine, server);
}
std::string ServerMetrics::render() const {
  return impl_->render();
}

std::string cache_dtype_of(const EngineConfig& config) {
  return config.kv_cache_dtype == "auto" ? config.dtype : config.kv_cache_dtype;
}

void check_metrics_prefix(std::string_view prefix) {
  constexpr size_t kMaxLength = 64;
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  };
  const auto is_allowed = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const bool ok = prefix.size() <= kMaxLength &&
                  std::all_of(prefix.begin(), prefix.end(), is_allowed) &&
                  (prefix.empty() || is_letter(prefix.front())) && prefix.substr(0, 2) != "__";
  if (!ok) {
    throw Error(
        "expected at most 64 letters, digits, '_' and ':', that do not begin with a digit or with "
        "'__', as in 'quire:' or 'vllm:'");
  }
}

}  // namespace quire::server
