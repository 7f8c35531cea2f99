#pragma once
// Sends a span for each generation to a collector of OpenTelemetry traces: OTLP over HTTP, JSON.
//
// The caller never waits: spans go through a bounded queue to a thread that sends them in batches,
// and sends a batch again after a pause if the collector does not answer or is busy. If the queue
// is full, or the collector refuses a batch, spans are lost: they are counted, and a warning says
// so, at most once a minute. Where there is no memory for a batch, it waits.
//
// Thread safety: every method from any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/observe/request_record.h"

namespace quire::server {

// Sizes and times are those of OpenTelemetry's BatchSpanProcessor.
struct TraceExporterConfig {
  std::string url{};  // as otlp_traces_url() gives it
  std::size_t max_queued_spans = 2048;
  std::size_t max_batch_spans = 512;
  std::chrono::milliseconds delay{1000};        // of a span, for others to go with it
  std::chrono::milliseconds timeout{10'000};    // of one batch
  std::chrono::milliseconds first_pause{1000};  // before a batch is sent again; doubles up to 30 s
  std::chrono::milliseconds last_sends{2000};   // how long the destructor goes on sending
  std::function<void(const std::string&)> warn{};  // called on its thread; may throw std::bad_alloc
};

class TraceExporter {
 public:
  // Throws Error if libcurl cannot be set up.
  explicit TraceExporter(TraceExporterConfig config);
  // Sends what is queued, for last_sends at most.
  ~TraceExporter();
  TraceExporter(const TraceExporter&) = delete;
  TraceExporter& operator=(const TraceExporter&) = delete;

  // Records a generation that is over. It becomes part of its client's trace
  // (RequestRecord::trace), or without one a trace of its own. If the client does not record its
  // trace, there is no span.
  void record(const RequestRecord& record);

  // Since the start.
  int64_t sent_spans() const;
  int64_t lost_spans() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
