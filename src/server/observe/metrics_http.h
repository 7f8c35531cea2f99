#pragma once
// What the metrics say of the server itself: HTTP requests and connections, admission's queue, its
// log, its traces and the memory that requests take.
//
// Thread safety: count() from any thread, update() from one at a time.
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "server/observe/metrics.h"
#include "server/observe/metrics_registry.h"
#include "server/observe/request_record.h"

namespace quire::server {

class HttpMetrics {
 public:
  // Both outlive it.
  HttpMetrics(const MetricsConfig& config, MetricsRegistry& registry);

  void count(const RequestRecord& record);
  void update(const ServerStats& server);

 private:
  using Counter = prometheus::Counter;
  template <typename T>
  using Family = prometheus::Family<T>;
  using Gauge = prometheus::Gauge;

  // A route, a method and a status, as labels know them (0: another status).
  using Kind = std::tuple<std::string_view, std::string_view, int>;
  struct Counters {
    Counter* responses = nullptr;
    Counter* requests = nullptr;
  };

  Counters make_counters(const Kind& kind);

  const MetricsConfig& config_;
  MetricsRegistry& registry_;
  std::mutex mutex_;
  std::map<Kind, Counters> counters_;  // found by labels once, which takes long

  // The first has the name and labels that vLLM's dashboards expect.
  Family<Counter>& requests_ = registry_.plain_counter_family(
      "http_requests_total", "HTTP requests answered, by route, method and class of status.");
  Family<Counter>& responses_ = registry_.counter_family(
      "http_responses_total", "HTTP requests answered, by route and status.");
  Gauge& admission_queue_ = registry_.gauge("admission_queue_length",
                                            "Requests accepted and not yet given to the engine.");
  Gauge& active_ =
      registry_.gauge("http_requests_active", "HTTP requests whose answer is not complete.");
  Gauge& connections_ = registry_.gauge("http_open_connections", "Connections that are open.");
  Counter& accepted_ =
      registry_.counter("http_accepted_connections_total", "Connections accepted.");
  Counter& refused_ = registry_.counter("http_rejected_connections_total",
                                        "Connections closed at once because there were too many.");
  Counter& malformed_ = registry_.counter("http_malformed_requests_total",
                                          "Requests that were no HTTP, or over one of its limits.");
  Counter& timed_out_ =
      registry_.counter("http_timed_out_connections_total",
                        "Connections closed because the client was silent too long.");
  Counter& slow_readers_ =
      registry_.counter("http_dropped_slow_readers_total",
                        "Connections closed because the client did not read its answer.");
  Counter& dropped_log_lines_ =
      registry_.counter("log_lines_dropped_total", "Log lines lost because the log was not read.");
  Counter& sent_spans_ =
      registry_.counter("trace_spans_sent_total", "Trace spans that the collector has taken.");
  Counter& lost_spans_ = registry_.counter(
      "trace_spans_lost_total", "Trace spans that the collector did not take, or not in time.");
  Gauge& request_memory_ = registry_.gauge(
      "request_memory_bytes", "Memory charged to the requests under way and to resumable streams.");
  Gauge& request_memory_limit_ = registry_.gauge(
      "request_memory_limit_bytes", "Memory that requests may take (--max-server-memory).");
  Counter& refused_memory_ = registry_.counter(
      "request_memory_refused_total", "Requests refused because others had taken the memory.");
};

}  // namespace quire::server
