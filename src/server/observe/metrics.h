#pragma once
// What /metrics shows: vLLM's names behind a prefix of the operator's choice, and some of our own.
//
// Names, labels and bucket boundaries are those of vLLM's V1 engine (vllm/v1/metrics/loggers.py),
// so that a dashboard made for vLLM shows quire when the prefix is "vllm:". docs/operations.md
// lists all of them. Every label has few values: what clients send never becomes one.
//
// Thread safety: every method from any thread. observe_inter_token() takes no lock.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine_config.h"
#include "quire/llm_engine.h"
#include "server/observe/request_record.h"

namespace quire::server {

struct MetricsConfig {
  std::string prefix = "quire:";  // in front of every name but the process_* ones; may be empty
  std::string model_name{};       // the first served name
  int64_t max_model_len = 0;      // the histograms of token counts end there; >= 1
  // The routes that http_requests_total tells apart, as they are documented
  // ("/v1/requests/{request_id}"). A placeholder in braces stands for one segment, at the end for
  // all that follows. Other paths count as "other".
  std::vector<std::string> paths{};
  // For cache_config_info.
  int block_size = 0;
  int64_t num_kv_blocks = 0;  // 0: not known
  bool enable_prefix_caching = true;
  std::string cache_dtype = "auto";
  int num_speculative_tokens = 0;  // the most drafts of a sequence in a step; 0: no speculation
  int max_loras = 0;               // adapters in a step; 0: none are served
  int num_stages = 1;              // that the model's layers are cut into
  int num_nodes = 1;               // processes that have the ranks
};

// The cache_dtype of an engine whose config has every default filled in: "bfloat16", "fp8".
std::string cache_dtype_of(const EngineConfig& config);

// What the server knows about itself at one moment; counts are since the start.
struct ServerStats {
  int64_t admission_queue_length = 0;  // accepted, not yet given to the engine
  int64_t active_requests = 0;         // HTTP requests without a complete answer
  int64_t open_connections = 0;
  int64_t accepted_connections = 0;
  int64_t rejected_connections = 0;
  int64_t malformed_requests = 0;
  int64_t timed_out_connections = 0;
  int64_t dropped_slow_readers = 0;
  int64_t dropped_log_lines = 0;
  int64_t sent_trace_spans = 0;
  int64_t lost_trace_spans = 0;
  int64_t request_memory_bytes = 0;  // charged to requests and streams
  int64_t request_memory_limit_bytes = 0;
  int64_t refused_memory_charges = 0;
};

class ServerMetrics {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  // Throws Error: a prefix that no metric name may begin with.
  explicit ServerMetrics(MetricsConfig config);
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // Once for every HTTP request, when it is over, whatever it was.
  void record(const RequestRecord& record);

  // For each output of a stream after its first: `tokens` new ones, `seconds` after the output
  // before. Counted as that many gaps of seconds / tokens. tokens <= 0: no effect.
  void observe_inter_token(double seconds, int64_t tokens = 1);

  // Takes over gauges and the engine's counts. Call it before render(); calling it more often makes
  // iteration_tokens_total finer.
  void update(const EngineStats& engine, const ServerStats& server);

  // The text format, version 0.0.4.
  std::string render() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Throws Error unless prefix + name is a name that Prometheus accepts:
// [a-zA-Z_:][a-zA-Z0-9_:]*, at most 64 characters. The error leaves the name of the option to the
// caller.
void check_metrics_prefix(std::string_view prefix);

}  // namespace quire::server
