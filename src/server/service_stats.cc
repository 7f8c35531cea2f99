// What the service counts, for its metrics.
#include "server/service.h"

namespace quire::server {

EngineStats Service::engine_stats() {
  EngineStats stats = environment_.engine.stats();
  admission_.add_to(stats.lora);
  return stats;
}

ServerStats Service::server_stats() const {
  const http::Stats http = environment_.http_stats();
  ServerStats stats;
  stats.admission_queue_length = admission_.num_queued();
  stats.active_requests = static_cast<int64_t>(generations_.size());
  stats.open_connections = http.open_connections;
  stats.accepted_connections = http.accepted_connections;
  stats.rejected_connections = http.rejected_connections;
  stats.malformed_requests = http.malformed_requests;
  stats.timed_out_connections = http.timed_out_connections;
  stats.dropped_slow_readers = http.dropped_slow_readers;
  stats.dropped_log_lines = environment_.log.dropped_lines();
  if (const TraceExporter* traces = environment_.traces) {
    stats.sent_trace_spans = traces->sent_spans();
    stats.lost_trace_spans = traces->lost_spans();
  }
  stats.request_memory_bytes = memory_->used();
  stats.request_memory_limit_bytes = memory_->limit();
  stats.refused_memory_charges = memory_->num_refused();
  return stats;
}

}  // namespace quire::server
