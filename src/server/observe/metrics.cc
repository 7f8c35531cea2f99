#include "server/observe/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "quire/error.h"
#include "quire/version.h"
#include "server/observe/metrics_buckets.h"
#include "server/observe/metrics_gaps.h"
#include "server/observe/metrics_process.h"
#include "server/observe/metrics_stages.h"

namespace quire::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr std::string_view kOther = "other";
constexpr std::array<std::string_view, 5> kFinishReasons = {"stop", "length", "abort", "timeout",
                                                            "error"};
constexpr std::array<std::string_view, 3> kRejectReasons = {"queue_full", "queue_timeout",
                                                            "shutting_down"};
constexpr std::array<std::string_view, 7> kMethods = {"GET",     "HEAD",  "POST",  "PUT",
                                                      "OPTIONS", "PATCH", "DELETE"};

// The value itself where it is a known one: labels never grow with what clients send.
template <std::size_t N>
std::string_view known_or_other(const std::array<std::string_view, N>& known,
                                std::string_view value) {
  return std::find(known.begin(), known.end(), value) != known.end() ? value : kOther;
}

bool matches(std::string_view pattern, std::string_view path) {
  while (true) {
    const std::string_view wanted = pattern.substr(0, pattern.find('/'));
    const bool is_placeholder = wanted.size() >= 2 && wanted.front() == '{' && wanted.back() == '}';
    const bool pattern_ends = wanted.size() == pattern.size();
    if (is_placeholder && pattern_ends) return !path.empty();  // names of models hold slashes
    const std::string_view segment = path.substr(0, path.find('/'));
    if (is_placeholder ? segment.empty() : wanted != segment) return false;
    const bool path_ends = segment.size() == path.size();
    if (pattern_ends || path_ends) return pattern_ends && path_ends;
    pattern.remove_prefix(wanted.size() + 1);
    path.remove_prefix(segment.size() + 1);
  }
}

// Counters only go up; the engine's own counts are taken over as they are.
void raise_to(Counter& counter, double total) {
  const double delta = total - counter.Value();
  if (delta > 0) counter.Increment(delta);
}

}  // namespace

class ServerMetrics::Impl {
 public:
  explicit Impl(MetricsConfig config)
      : config_(std::move(config)),
        labels_{{"model_name", config_.model_name}, {"engine", "0"}},
        gaps_(output_token_buckets()) {
    check(config_.max_model_len >= 1, "metrics: max_model_len must be at least 1");
    const Labels cache = {
        {"engine", "0"},
        {"block_size", std::to_string(config_.block_size)},
        {"cache_dtype", config_.cache_dtype},
        {"enable_prefix_caching", config_.enable_prefix_caching ? "True" : "False"},
        {"num_gpu_blocks",
         config_.num_kv_blocks > 0 ? std::to_string(config_.num_kv_blocks) : "None"}};
    gauge_family("cache_config_info", "How the KV cache is set up; always 1.").Add(cache).Set(1);
    gauge_family("build_info", "The version that runs; always 1.")
        .Add({{"version", std::string(version())}})
        .Set(1);
    // So that a rate over a reason is 0 from the start, not missing until its first request.
    for (const std::string_view reason : kFinishReasons) finished(reason);
    for (const std::string_view reason : kRejectReasons) rejected(reason);
    if (config_.num_speculative_tokens > 0) drafts_ = draft_counters();
    if (config_.max_loras > 0) adapters_ = adapter_counters();
    if (config_.num_nodes > 1) {
      node_bytes_ = &counter("node_bytes_sent_total", "Bytes that node 0 sent to the other nodes.");
    }
  }

  void record(const RequestRecord& record) {
    count_http(record);
    if (!record.reject_reason.empty()) {
      rejected(known_or_other(kRejectReasons, record.reject_reason)).Increment();
    }
    if (record.client_disconnected) disconnected_.Increment();
    if (!record.finish_reason.empty()) observe_generation(record);
  }

  void observe_inter_token(double seconds, int64_t tokens) {
    if (tokens <= 0) return;
    gaps_.observe(seconds / static_cast<double>(tokens), static_cast<uint64_t>(tokens));
  }

  void update(const EngineStats& engine, const ServerStats& server) {
    const std::lock_guard lock(update_mutex_);
    update_engine(engine);
    // Of vLLM's two states a request that admission holds back is waiting.
    waiting_.Set(static_cast<double>(engine.num_waiting + server.admission_queue_length));
    admission_queue_.Set(static_cast<double>(server.admission_queue_length));
    active_.Set(static_cast<double>(server.active_requests));
    connections_.Set(static_cast<double>(server.open_connections));
    raise_to(accepted_, static_cast<double>(server.accepted_connections));
    raise_to(refused_, static_cast<double>(server.rejected_connections));
    raise_to(malformed_, static_cast<double>(server.malformed_requests));
    raise_to(timed_out_, static_cast<double>(server.timed_out_connections));
    raise_to(slow_readers_, static_cast<double>(server.dropped_slow_readers));
    raise_to(dropped_log_lines_, static_cast<double>(server.dropped_log_lines));
    raise_to(sent_spans_, static_cast<double>(server.sent_trace_spans));
    raise_to(lost_spans_, static_cast<double>(server.lost_trace_spans));
    request_memory_.Set(static_cast<double>(server.request_memory_bytes));
    request_memory_limit_.Set(static_cast<double>(server.request_memory_limit_bytes));
    raise_to(refused_memory_, static_cast<double>(server.refused_memory_charges));
  }

  std::string render() const {
    std::vector<prometheus::MetricFamily> families = registry_.Collect();
    append_gaps(families);
    if (adapters_) append_adapters(families);
    if (config_.num_stages > 1) append_stages(families);
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

  std::string prefixed(std::string_view name) const { return config_.prefix + std::string(name); }

  Family<Gauge>& gauge_family(std::string_view name, std::string_view help) {
    return prometheus::BuildGauge()
        .Name(prefixed(name))
        .Help(std::string(help))
        .Register(registry_);
  }
  Family<Counter>& counter_family(const std::string& name, std::string_view help) {
    return prometheus::BuildCounter().Name(name).Help(std::string(help)).Register(registry_);
  }
  Gauge& gauge(std::string_view name, std::string_view help) {
    return gauge_family(name, help).Add(labels_);
  }
  Counter& counter(std::string_view name, std::string_view help) {
    return counter_family(prefixed(name), help).Add(labels_);
  }
  Histogram& histogram(std::string_view name, std::string_view help,
                       const std::vector<double>& boundaries) {
    return prometheus::BuildHistogram()
        .Name(prefixed(name))
        .Help(std::string(help))
        .Register(registry_)
        .Add(labels_, boundaries);
  }

  Counter& finished(std::string_view reason) {
    Labels labels = labels_;
    labels["finished_reason"] = reason;
    return finished_.Add(labels);
  }
  Counter& rejected(std::string_view reason) {
    Labels labels = labels_;
    labels["reason"] = reason;
    return rejected_.Add(labels);
  }

  DraftCounters draft_counters() {
    DraftCounters counters;
    counters.drafts = &counter("spec_decode_num_drafts_total",
                               "Times that a step verified draft tokens of a sequence.");
    counters.tokens =
        &counter("spec_decode_num_draft_tokens_total", "Draft tokens that steps verified.");
    counters.accepted =
        &counter("spec_decode_num_accepted_tokens_total", "Draft tokens that were kept.");
    Family<Counter>& per_pos =
        counter_family(prefixed("spec_decode_num_accepted_tokens_per_pos_total"),
                       "Draft tokens that were kept, by their position in the draft.");
    for (int i = 0; i < config_.num_speculative_tokens; ++i) {
      Labels labels = labels_;
      labels["position"] = std::to_string(i);
      counters.accepted_per_pos.push_back(&per_pos.Add(labels));
    }
    return counters;
  }

  static void update_drafts(const DraftCounters& counters, const SpeculativeStats& stats) {
    raise_to(*counters.drafts, static_cast<double>(stats.num_drafts));
    raise_to(*counters.tokens, static_cast<double>(stats.num_draft_tokens));
    raise_to(*counters.accepted, static_cast<double>(stats.num_accepted_tokens));
    for (size_t i = 0; i < counters.accepted_per_pos.size(); ++i) {
      raise_to(*counters.accepted_per_pos[i],
               static_cast<double>(stats.num_accepted_tokens_per_pos.at(i)));
    }
  }

  AdapterCounters adapter_counters() {
    AdapterCounters counters;
    counters.loads = &counter("lora_loads_total",
                              "Times that the weights of an adapter were read into host memory.");
    counters.evictions =
        &counter("lora_evictions_total",
                 "Times that the weights of an adapter left host memory for those of others.");
    counters.waits =
        &counter("lora_waits_total", "Sequences that waited because max_loras other adapters ran.");
    return counters;
  }

  static void update_adapters(AdapterCounters& counters, const LoraStats& stats) {
    raise_to(*counters.loads, static_cast<double>(stats.num_loads));
    raise_to(*counters.evictions, static_cast<double>(stats.num_evictions));
    raise_to(*counters.waits, static_cast<double>(stats.num_waits));
    counters.last = stats;
    counters.updated_s =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }

  // As vLLM has it: what counts are its labels, and its value is when that was.
  void append_adapters(std::vector<prometheus::MetricFamily>& families) const {
    const std::lock_guard lock(update_mutex_);
    prometheus::ClientMetric metric;
    metric.label = {{"max_lora", std::to_string(config_.max_loras)},
                    {"running_lora_adapters", joined(adapters_->last.running)},
                    {"waiting_lora_adapters", joined(adapters_->last.waiting)}};
    metric.gauge.value = adapters_->updated_s;
    families.push_back(
        {prefixed("lora_requests_info"),
         "The adapters of running and of waiting sequences, separated by commas; the value is "
         "the time.",
         prometheus::MetricType::Gauge,
         {metric}});
  }

  void append_stages(std::vector<prometheus::MetricFamily>& families) const {
    const std::lock_guard lock(update_mutex_);
    std::ranges::move(stage_families(config_.prefix, labels_, config_.num_stages, stages_),
                      std::back_inserter(families));
  }

  static std::string joined(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ","));
  }

  void count_http(const RequestRecord& record) {
    const auto route =
        std::find_if(config_.paths.begin(), config_.paths.end(),
                     [&](const std::string& pattern) { return matches(pattern, record.path); });
    const std::string path(route != config_.paths.end() ? *route : kOther);
    const bool has_status = record.status >= 100 && record.status <= 599;
    const std::string status = has_status ? std::to_string(record.status) : std::string(kOther);
    const std::string status_class =
        has_status ? fmt::format("{}xx", record.status / 100) : std::string(kOther);
    responses_.Add({{"path", path}, {"status", status}}).Increment();
    requests_
        .Add({{"handler", path},
              {"method", std::string(known_or_other(kMethods, record.method))},
              {"status", status_class}})
        .Increment();
  }

  void observe_generation(const RequestRecord& record) {
    // To the engine a call of a tool is a stop like another.
    const std::string_view reason =
        record.finish_reason == "tool_calls" ? "stop" : std::string_view(record.finish_reason);
    finished(known_or_other(kFinishReasons, reason)).Increment();
    e2e_.Observe(record.total_s);
    prompt_tokens_.Observe(static_cast<double>(record.prompt_tokens));
    computed_tokens_.Observe(static_cast<double>(record.prompt_tokens - record.cached_tokens));
    generation_tokens_.Observe(static_cast<double>(record.output_tokens));
    params_n_.Observe(static_cast<double>(record.n));
    if (record.max_tokens) params_max_tokens_.Observe(static_cast<double>(*record.max_tokens));
    if (record.output_tokens == 0) return;  // it had no first token: no phase to speak of
    ttft_.Observe(record.ttft_s);
    queue_.Observe(record.queue_s);
    prefill_.Observe(record.prefill_s);
    decode_.Observe(record.decode_s);
    inference_.Observe(record.prefill_s + record.decode_s);
    // The n sequences decode side by side.
    const double per_sequence = static_cast<double>(record.output_tokens) /
                                static_cast<double>(std::max<int64_t>(record.n, 1));
    if (per_sequence > 1) per_output_token_.Observe(record.decode_s / (per_sequence - 1));
  }

  void update_engine(const EngineStats& engine) {
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

  // The engine counts steps and tokens, not the tokens of each step: their mean since the last
  // update stands for all of these steps. Count and sum are exact.
  void observe_steps(int64_t steps, int64_t tokens) {
    const double mean = static_cast<double>(tokens) / static_cast<double>(steps);
    const auto bucket =
        std::lower_bound(iteration_boundaries_.begin(), iteration_boundaries_.end(), mean);
    double& increment = increments_[static_cast<size_t>(bucket - iteration_boundaries_.begin())];
    increment = static_cast<double>(steps);
    iteration_.ObserveMultiple(increments_, static_cast<double>(tokens));
    increment = 0;
  }

  void append_gaps(std::vector<prometheus::MetricFamily>& families) const {
    const GapHistogram::Snapshot snapshot = gaps_.snapshot();
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels_) metric.label.push_back({name, value});
    metric.histogram.sample_count = snapshot.cumulative_counts.back();
    metric.histogram.sample_sum = snapshot.sum;
    const std::vector<double>& boundaries = gaps_.boundaries();
    for (size_t i = 0; i < boundaries.size(); ++i) {
      metric.histogram.bucket.push_back({snapshot.cumulative_counts[i], boundaries[i]});
    }
    const auto add = [&](std::string_view name, std::string help) {
      families.push_back(
          {prefixed(name), std::move(help), prometheus::MetricType::Histogram, {metric}});
    };
    add("inter_token_latency_seconds", "Time between the output tokens of a request.");
    add("time_per_output_token_seconds", "vLLM's older name of inter_token_latency_seconds.");
  }

  static void append_process(std::vector<prometheus::MetricFamily>& families) {
    using prometheus::MetricType;
    const ProcessStats stats = read_process_stats();
    const auto add = [&families](std::string name, std::string help, MetricType type, auto value) {
      if (!value) return;
      prometheus::ClientMetric metric;
      (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) =
          static_cast<double>(*value);
      families.push_back({std::move(name), std::move(help), type, {metric}});
    };
    add("process_resident_memory_bytes", "Memory that the process has in RAM.", MetricType::Gauge,
        stats.resident_bytes);
    add("process_virtual_memory_bytes", "Memory that the process has mapped.", MetricType::Gauge,
        stats.virtual_bytes);
    add("process_start_time_seconds", "When the process started, since the epoch.",
        MetricType::Gauge, stats.start_time_s);
    add("process_cpu_seconds_total", "Processor time of the process, user and system.",
        MetricType::Counter, stats.cpu_s);
    add("process_open_fds", "File descriptors that are open.", MetricType::Gauge, stats.open_fds);
    add("process_max_fds", "File descriptors that may be open.", MetricType::Gauge, stats.max_fds);
  }

  const MetricsConfig config_;
  const Labels labels_;
  prometheus::Registry registry_;
  GapHistogram gaps_;
  mutable std::mutex update_mutex_;
  int64_t last_steps_ = 0;
  int64_t last_tokens_ = 0;
  const std::vector<double> iteration_boundaries_ = iteration_token_buckets();
  std::vector<double> increments_ = std::vector<double>(iteration_boundaries_.size() + 1, 0.0);

  // The engine, as update() finds it.
  Gauge& running_ = gauge("num_requests_running", "Requests that the engine is computing.");
  Gauge& waiting_ =
      gauge("num_requests_waiting", "Requests that wait, in the engine's queue or in admission's.");
  Gauge& kv_usage_ = gauge("kv_cache_usage_perc", "Share of KV blocks in use; 1 is all of them.");
  Counter& cache_queries_ =
      counter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
  Counter& cache_hits_ =
      counter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  Counter& preemptions_ = counter(
      "num_preemptions_total", "Times that a running request gave its KV blocks up for another.");
  Counter& prompt_total_ =
      counter("prompt_tokens_total", "Prompt tokens processed, computed or from the prefix cache.");
  Counter& generation_total_ = counter("generation_tokens_total", "Output tokens generated.");
  Histogram& iteration_ = histogram("iteration_tokens_total",
                                    "Tokens computed in an engine step; a bucket counts the mean "
                                    "of the steps between two updates.",
                                    iteration_boundaries_);
  std::optional<DraftCounters> drafts_;      // only with speculation, as in vLLM
  std::optional<AdapterCounters> adapters_;  // only with adapters, as in vLLM
  EngineStats stages_;                       // of several stages: what the engine said
  Counter* node_bytes_ = nullptr;            // only with several nodes

  // Requests, as record() counts them.
  Family<Counter>& finished_ =
      counter_family(prefixed("request_success_total"), "Generations that ended, by reason.");
  Family<Counter>& rejected_ = counter_family(prefixed("rejected_requests_total"),
                                              "Generations that admission refused, by reason.");
  Counter& disconnected_ = counter("client_disconnects_total",
                                   "Requests whose client left before the answer was complete.");
  Histogram& ttft_ = histogram("time_to_first_token_seconds",
                               "Time from arrival to the first token.", first_token_buckets());
  Histogram& per_output_token_ =
      histogram("request_time_per_output_token_seconds",
                "Mean time between the output tokens of a request.", output_token_buckets());
  Histogram& e2e_ =
      histogram("e2e_request_latency_seconds", "Time from arrival to the end of the answer.",
                request_latency_buckets());
  Histogram& queue_ = histogram("request_queue_time_seconds",
                                "Time from arrival until the engine first scheduled the request.",
                                request_latency_buckets());
  Histogram& prefill_ =
      histogram("request_prefill_time_seconds", "Time from being scheduled to the first token.",
                request_latency_buckets());
  Histogram& decode_ =
      histogram("request_decode_time_seconds", "Time from the first token to the last.",
                request_latency_buckets());
  Histogram& inference_ =
      histogram("request_inference_time_seconds", "Time from being scheduled to the last token.",
                request_latency_buckets());
  Histogram& prompt_tokens_ = histogram("request_prompt_tokens", "Prompt tokens of a request.",
                                        one_two_five_buckets(config_.max_model_len));
  Histogram& computed_tokens_ = histogram("request_prefill_kv_computed_tokens",
                                          "Prompt tokens of a request not found in the cache.",
                                          one_two_five_buckets(config_.max_model_len));
  Histogram& generation_tokens_ =
      histogram("request_generation_tokens", "Output tokens of a request, over all its n.",
                one_two_five_buckets(config_.max_model_len));
  Histogram& params_n_ =
      histogram("request_params_n", "The parameter n of a request.", request_n_buckets());
  Histogram& params_max_tokens_ =
      histogram("request_params_max_tokens", "The parameter max_tokens of a request.",
                one_two_five_buckets(config_.max_model_len));

  // HTTP. The first has the name and labels that vLLM's dashboards expect.
  Family<Counter>& requests_ = counter_family(
      "http_requests_total", "HTTP requests answered, by route, method and class of status.");
  Family<Counter>& responses_ = counter_family(prefixed("http_responses_total"),
                                               "HTTP requests answered, by route and status.");
  Gauge& admission_queue_ =
      gauge("admission_queue_length", "Requests accepted and not yet given to the engine.");
  Gauge& active_ = gauge("http_requests_active", "HTTP requests whose answer is not complete.");
  Gauge& connections_ = gauge("http_open_connections", "Connections that are open.");
  Counter& accepted_ = counter("http_accepted_connections_total", "Connections accepted.");
  Counter& refused_ = counter("http_rejected_connections_total",
                              "Connections closed at once because there were too many.");
  Counter& malformed_ = counter("http_malformed_requests_total",
                                "Requests that were no HTTP, or over one of its limits.");
  Counter& timed_out_ = counter("http_timed_out_connections_total",
                                "Connections closed because the client was silent too long.");
  Counter& slow_readers_ =
      counter("http_dropped_slow_readers_total",
              "Connections closed because the client did not read its answer.");
  Counter& dropped_log_lines_ =
      counter("log_lines_dropped_total", "Log lines lost because the log was not read.");
  Counter& sent_spans_ =
      counter("trace_spans_sent_total", "Trace spans that the collector has taken.");
  Counter& lost_spans_ = counter("trace_spans_lost_total",
                                 "Trace spans that the collector did not take, or not in time.");
  Gauge& request_memory_ = gauge(
      "request_memory_bytes", "Memory charged to the requests under way and to resumable streams.");
  Gauge& request_memory_limit_ =
      gauge("request_memory_limit_bytes", "Memory that requests may take (--max-server-memory).");
  Counter& refused_memory_ = counter("request_memory_refused_total",
                                     "Requests refused because others had taken the memory.");
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
