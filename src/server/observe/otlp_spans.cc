#include "server/observe/otlp_spans.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_writer.h"
#include "quire/version.h"

namespace quire::server {
namespace {

// Of opentelemetry/proto/trace/v1/trace.proto.
constexpr int kSpanKindServer = 2;
constexpr int kStatusError = 2;

// Writes the list of a span's or a resource's attributes.
class Attributes {
 public:
  explicit Attributes(JsonWriter& json) : json_(json) { json_.begin_array(); }
  void end() { json_.end_array(); }

  void text(std::string_view name, std::string_view value) {
    if (!value.empty()) add(name, [&] { json_.member("stringValue", value); });
  }
  void integer(std::string_view name, int64_t value) {  // 64 bits are strings in this encoding
    add(name, [&] { json_.member("intValue", std::to_string(value)); });
  }
  void number(std::string_view name, double value) {
    add(name, [&] { json_.member("doubleValue", value); });
  }
  void flag(std::string_view name, bool value) {
    add(name, [&] { json_.member("boolValue", value); });
  }
  void texts(std::string_view name, std::string_view only_value) {
    if (only_value.empty()) return;
    add(name, [&] {
      json_.key("arrayValue").begin_object().key("values").begin_array();
      json_.begin_object().member("stringValue", only_value).end_object();
      json_.end_array().end_object();
    });
  }

 private:
  template <typename WriteValue>
  void add(std::string_view name, WriteValue write_value) {
    json_.begin_object().member("key", name).key("value").begin_object();
    write_value();
    json_.end_object().end_object();
  }

  JsonWriter& json_;
};

template <typename T>
void add_number(Attributes& attributes, std::string_view name, const std::optional<T>& value) {
  if (value) attributes.number(name, static_cast<double>(*value));
}

void write_attributes(JsonWriter& json, const RequestRecord& record) {
  Attributes attributes(json);
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
  attributes.end();
}

int64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void write_span(JsonWriter& json, const Span& span) {
  const RequestRecord& record = span.record;
  json.begin_object().member("traceId", span.trace_id).member("spanId", span.span_id);
  if (record.trace) {
    json.member("parentSpanId", record.trace->parent_id);
    if (!record.trace->state.empty()) json.member("traceState", record.trace->state);
  }
  const int64_t begin = nanoseconds(record.arrived);
  json.member("flags", 1).member("name", "llm_request").member("kind", kSpanKindServer);
  json.member("startTimeUnixNano", std::to_string(begin));
  json.member("endTimeUnixNano",
              std::to_string(begin + static_cast<int64_t>(record.total_s * 1e9)));
  write_attributes(json.key("attributes"), record);
  if (record.status >= 500 || record.finish_reason == "error") {
    json.key("status").begin_object();
    json.member("code", kStatusError).member("message", record.error).end_object();
  }
  json.end_object();
}

}  // namespace

std::string otlp_traces_json(std::span<const Span> spans) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("resourceSpans").begin_array().begin_object();
  json.key("resource").begin_object().key("attributes");
  Attributes service(json);
  service.text("service.name", "quire");
  service.text("service.version", version());
  service.end();
  json.end_object().key("scopeSpans").begin_array().begin_object();
  json.key("scope").begin_object();
  json.member("name", "quire.server").member("version", version()).end_object();
  json.key("spans").begin_array();
  for (const Span& span : spans) write_span(json, span);
  json.end_array().end_object().end_array().end_object().end_array().end_object();
  return out;
}

}  // namespace quire::server
