#pragma once
// A request's place in a trace that spans several services: W3C Trace Context
// (https://www.w3.org/TR/trace-context/), the headers traceparent and tracestate.
//
// Thread safety: plain values and pure functions.
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace quire::server {

struct TraceContext {
  std::string trace_id{};   // 32 hexadecimal digits in lower case, not all 0
  std::string parent_id{};  // 16 of them: the caller's span
  bool sampled = false;     // the caller records the trace
  std::string state{};      // tracestate as it came; empty without one
};

// Parses the value of a traceparent header. Nothing where the specification says to ignore it: a
// version "ff", a wrong length, upper case, a trace or a parent of zeros. Of later versions it
// reads the fields that version 00 has.
std::optional<TraceContext> parse_traceparent(std::string_view value);

// From a request's headers. Several traceparent headers count as none. A tracestate of more than
// 512 bytes, or with other than printable ASCII, is left out.
std::optional<TraceContext> trace_context_of(const http::Request& request);

}  // namespace quire::server
