#include "server/observe/metrics_requests.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace quire::server {
namespace {

constexpr std::array<std::string_view, 5> kFinishReasons = {"stop", "length", "abort", "timeout",
                                                            "error"};
constexpr std::array<std::string_view, 3> kRejectReasons = {"queue_full", "queue_timeout",
                                                            "shutting_down"};

}  // namespace

GenerationMetrics::GenerationMetrics(const MetricsConfig& config, MetricsRegistry& registry)
    : config_(config), registry_(registry) {
  // So that a rate over a reason is 0 from the start, not missing until its first request.
  for (const std::string_view reason : kFinishReasons) finished(reason);
  for (const std::string_view reason : kRejectReasons) rejected(reason);
}

void GenerationMetrics::record(const RequestRecord& record) {
  if (!record.reject_reason.empty()) {
    rejected(known_or_other(kRejectReasons, record.reject_reason)).Increment();
  }
  if (record.client_disconnected) disconnected_.Increment();
  if (!record.finish_reason.empty()) observe(record);
}

void GenerationMetrics::observe(const RequestRecord& record) {
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

prometheus::Counter& GenerationMetrics::finished(std::string_view reason) {
  return finished_.Add(registry_.labels_and("finished_reason", reason));
}

prometheus::Counter& GenerationMetrics::rejected(std::string_view reason) {
  return rejected_.Add(registry_.labels_and("reason", reason));
}

}  // namespace quire::server
