#include "server/observe/metrics_http.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace quire::server {
namespace {

constexpr std::array<std::string_view, 7> kMethods = {"GET",     "HEAD",  "POST",  "PUT",
                                                      "OPTIONS", "PATCH", "DELETE"};

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

}  // namespace

HttpMetrics::HttpMetrics(const MetricsConfig& config, MetricsRegistry& registry)
    : config_(config), registry_(registry) {}

void HttpMetrics::count(const RequestRecord& record) {
  const auto route =
      std::find_if(config_.paths.begin(), config_.paths.end(),
                   [&](const std::string& pattern) { return matches(pattern, record.path); });
  const std::string_view path = route != config_.paths.end() ? *route : kOtherLabel;
  const bool has_status = record.status >= 100 && record.status <= 599;
  const Kind kind = {path, known_or_other(kMethods, record.method), has_status ? record.status : 0};
  const std::lock_guard lock(mutex_);
  auto found = counters_.find(kind);
  if (found == counters_.end()) found = counters_.emplace(kind, make_counters(kind)).first;
  found->second.responses->Increment();
  found->second.requests->Increment();
}

HttpMetrics::Counters HttpMetrics::make_counters(const Kind& kind) {
  const auto& [path, method, code] = kind;
  const std::string status = code > 0 ? std::to_string(code) : std::string(kOtherLabel);
  const std::string status_class =
      code > 0 ? fmt::format("{}xx", code / 100) : std::string(kOtherLabel);
  return {&responses_.Add({{"path", std::string(path)}, {"status", status}}),
          &requests_.Add({{"handler", std::string(path)},
                          {"method", std::string(method)},
                          {"status", status_class}})};
}

void HttpMetrics::update(const ServerStats& server) {
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

}  // namespace quire::server
