#include "server/observe/otlp_spans.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "quire/version.h"
#include "server/observe/access_log_text.h"

namespace quire::server {
namespace {

// Of opentelemetry/proto/trace/v1/trace.proto.
constexpr int kSpanKindServer = 2;
constexpr int kStatusError = 2;

// The list of a span's or a resource's attributes. Names are ours and need no escaping.
class Attributes {
 public:
  void text(std::string_view name, std::string_view value) {
    if (value.empty()) return;
    begin(name, "stringValue");
    append_json_string(list_, value);
    list_ += "}}";
  }
  void integer(std::string_view name, int64_t value) {  // 64 bits are strings in this encoding
    begin(name, "intValue");
    fmt::format_to(std::back_inserter(list_), "\"{}\"}}}}", value);
  }
  void number(std::string_view name, double value) {
    begin(name, "doubleValue");
    fmt::format_to(std::back_inserter(list_), "{}}}}}", value);
  }
  void flag(std::string_view name, bool value) {
    begin(name, "boolValue");
    fmt::format_to(std::back_inserter(list_), "{}}}}}", value);
  }
  void texts(std::string_view name, std::string_view only_value) {
    if (only_value.empty()) return;
    begin(name, "arrayValue");
    list_ += R"({"values":[{"stringValue":)";
    append_json_string(list_, only_value);
    list_ += "}]}}}";
  }
  std::string take() && { return "[" + list_ + "]"; }

 private:
  void begin(std::string_view name, std::string_view type) {
    fmt::format_to(std::back_inserter(list_), R"({}{{"key":"{}","value":{{"{}":)",
                   list_.empty() ? "" : ",", name, type);
  }
  std::string list_;
};

template <typename T>
void add_number(Attributes& attributes, std::string_view name, const std::optional<T>& value) {
  if (value) attributes.number(name, static_cast<double>(*value));
}

std::string attributes_of(const RequestRecord& record) {
  Attributes attributes;
  attributes.text("gen_ai.request.id", record.request_id);
  attributes.text("gen_ai.response.model", record.model);
  attributes.integer("gen_ai.request.n", record.n);
  if (record.max_tokens) attributes.integer("gen_ai.request.max_tokens", *record.max_tokens);
  add_number(attributes, "gen_ai.request.temperature", record.temperature);
  add_number(attributes, "gen_ai.request.top_p", record.top_p);
  attributes.integer("gen_ai.usage.prompt_tokens", record.prompt_tokens);
  attributes.integer("gen_ai.usage.completion_tokens", record.output_tokens);
  attributes.number("gen_ai.latency.e2e", record.total_s);
  if (record.output_tokens > 0) {
    attributes.number("gen_ai.latency.time_in_queue", record.queue_s);
    attributes.number("gen_ai.latency.time_to_first_token", record.ttft_s);
    attributes.number("gen_ai.latency.time_in_model_prefill", record.prefill_s);
    attributes.number("gen_ai.latency.time_in_model_decode", record.decode_s);
    attributes.number("gen_ai.latency.time_in_model_inference", record.prefill_s + record.decode_s);
  }
  attributes.texts("gen_ai.response.finish_reasons", record.finish_reason);
  attributes.text("http.request.method", record.method);
  attributes.text("url.path", record.path);
  attributes.integer("http.response.status_code", record.status);
  attributes.text("quire.client", record.client);
  attributes.text("quire.reject_reason", record.reject_reason);
  attributes.flag("quire.client_disconnected", record.client_disconnected);
  attributes.integer("quire.cached_tokens", record.cached_tokens);
  attributes.integer("quire.steps", record.steps);
  attributes.integer("quire.preemptions", record.preemptions);
  if (record.draft_tokens > 0) {
    attributes.integer("quire.draft_tokens", record.draft_tokens);
    attributes.integer("quire.accepted_draft_tokens", record.accepted_draft_tokens);
  }
  return std::move(attributes).take();
}

int64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void append_span(std::string& out, const Span& span) {
  const RequestRecord& record = span.record;
  fmt::format_to(std::back_inserter(out), R"({{"traceId":"{}","spanId":"{}")", span.trace_id,
                 span.span_id);
  if (record.trace) {
    fmt::format_to(std::back_inserter(out), R"(,"parentSpanId":"{}")", record.trace->parent_id);
    if (!record.trace->state.empty()) {
      out += R"(,"traceState":)";
      append_json_string(out, record.trace->state);
    }
  }
  const int64_t begin = nanoseconds(record.arrived);
  fmt::format_to(std::back_inserter(out),
                 R"(,"flags":1,"name":"llm_request","kind":{},"startTimeUnixNano":"{}",)"
                 R"("endTimeUnixNano":"{}","attributes":{})",
                 kSpanKindServer, begin, begin + static_cast<int64_t>(record.total_s * 1e9),
                 attributes_of(record));
  if (record.status >= 500 || record.finish_reason == "error") {
    fmt::format_to(std::back_inserter(out), R"(,"status":{{"code":{},"message":)", kStatusError);
    append_json_string(out, record.error);
    out += '}';
  }
  out += '}';
}

}  // namespace

std::string otlp_traces_json(std::span<const Span> spans) {
  Attributes service;
  service.text("service.name", "quire");
  service.text("service.version", version());
  std::string out = fmt::format(
      R"({{"resourceSpans":[{{"resource":{{"attributes":{}}},"scopeSpans":[{{"scope":{{"name":"quire.server","version":"{}"}},"spans":[)",
      std::move(service).take(), version());
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i > 0) out += ',';
    append_span(out, spans[i]);
  }
  out += "]}]}]}";
  return out;
}

}  // namespace quire::server
