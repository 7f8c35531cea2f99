#pragma once
// What the metrics say of requests: how they ended, and how long their parts took.
//
// Thread safety: record() from any thread.
#include <string_view>

#include "server/observe/metrics.h"
#include "server/observe/metrics_buckets.h"
#include "server/observe/metrics_registry.h"
#include "server/observe/request_record.h"

namespace quire::server {

class GenerationMetrics {
 public:
  // Both outlive it.
  GenerationMetrics(const MetricsConfig& config, MetricsRegistry& registry);

  void record(const RequestRecord& record);

 private:
  using Counter = prometheus::Counter;
  template <typename T>
  using Family = prometheus::Family<T>;
  using Histogram = prometheus::Histogram;

  // Of a request that was to generate something.
  void observe(const RequestRecord& record);
  Counter& finished(std::string_view reason);
  Counter& rejected(std::string_view reason);

  const MetricsConfig& config_;
  MetricsRegistry& registry_;

  Family<Counter>& finished_ =
      registry_.counter_family("request_success_total", "Generations that ended, by reason.");
  Family<Counter>& rejected_ = registry_.counter_family(
      "rejected_requests_total", "Generations that admission refused, by reason.");
  Counter& disconnected_ = registry_.counter(
      "client_disconnects_total", "Requests whose client left before the answer was complete.");
  Histogram& ttft_ =
      registry_.histogram("time_to_first_token_seconds", "Time from arrival to the first token.",
                          first_token_buckets());
  Histogram& per_output_token_ = registry_.histogram(
      "request_time_per_output_token_seconds", "Mean time between the output tokens of a request.",
      output_token_buckets());
  Histogram& e2e_ =
      registry_.histogram("e2e_request_latency_seconds",
                          "Time from arrival to the end of the answer.", request_latency_buckets());
  Histogram& queue_ = registry_.histogram(
      "request_queue_time_seconds",
      "Time from arrival until the engine first scheduled the request.", request_latency_buckets());
  Histogram& prefill_ = registry_.histogram("request_prefill_time_seconds",
                                            "Time from being scheduled to the first token.",
                                            request_latency_buckets());
  Histogram& decode_ =
      registry_.histogram("request_decode_time_seconds", "Time from the first token to the last.",
                          request_latency_buckets());
  Histogram& inference_ = registry_.histogram("request_inference_time_seconds",
                                              "Time from being scheduled to the last token.",
                                              request_latency_buckets());
  Histogram& prompt_tokens_ =
      registry_.histogram("request_prompt_tokens", "Prompt tokens of a request.",
                          one_two_five_buckets(config_.max_model_len));
  Histogram& computed_tokens_ = registry_.histogram(
      "request_prefill_kv_computed_tokens", "Prompt tokens of a request not found in the cache.",
      one_two_five_buckets(config_.max_model_len));
  Histogram& generation_tokens_ = registry_.histogram("request_generation_tokens",
                                                      "Output tokens of a request, over all its n.",
                                                      one_two_five_buckets(config_.max_model_len));
  Histogram& params_n_ =
      registry_.histogram("request_params_n", "The parameter n of a request.", request_n_buckets());
  Histogram& params_max_tokens_ =
      registry_.histogram("request_params_max_tokens", "The parameter max_tokens of a request.",
                          one_two_five_buckets(config_.max_model_len));
};

}  // namespace quire::server
