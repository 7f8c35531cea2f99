#pragma once
// Generations as spans of OpenTelemetry, in the JSON encoding of OTLP
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding). Names are vLLM's
// (vllm/tracing.py): a span llm_request for each generation, with its parameters, tokens and
// latencies, and where quire says more, attributes that begin with "quire.".
//
// Thread safety: plain values and pure functions.
#include <span>
#include <string>

#include "server/observe/request_record.h"

namespace quire::server {

struct Span {
  RequestRecord record{};
  std::string trace_id{};  // 32 hexadecimal digits
  std::string span_id{};   // 16 of them
};

// The body of a request to a collector: all spans, as those of one service.
std::string otlp_traces_json(std::span<const Span> spans);

}  // namespace quire::server
