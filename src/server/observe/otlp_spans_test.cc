#include "server/observe/otlp_spans.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire::server {
namespace {

Span generation_span() {
  Span span;
  span.trace_id = "0af7651916cd43dd8448eb211c80319c";
  span.span_id = "b7ad6b7169203331";
  RequestRecord& record = span.record;
  record.request_id = "abc";
  record.arrived = std::chrono::system_clock::time_point(std::chrono::milliseconds(1763709402123));
  record.method = "POST";
  record.path = "/v1/completions";
  record.model = "lexicon";
  record.client = "key-1a2b3c4d";
  record.owner = "owner-hash";
  record.status = 200;
  record.finish_reason = "length";
  record.n = 2;
  record.max_tokens = 64;
  record.temperature = 0.5;
  record.prompt_tokens = 120;
  record.cached_tokens = 96;
  record.output_tokens = 128;
  record.steps = 65;
  record.preemptions = 1;
  record.queue_s = 0.25;
  record.prefill_s = 0.125;
  record.decode_s = 0.5;
  record.ttft_s = 0.375;
  record.total_s = 1;
  return span;
}

std::vector<nlohmann::json> spans_of(const std::vector<Span>& spans) {
  const nlohmann::json body = nlohmann::json::parse(otlp_traces_json(spans));
  const nlohmann::json& resource = body.at("resourceSpans").at(0);
  EXPECT_EQ(resource["resource"]["attributes"][0]["key"], "service.name");
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "quire");
  return resource.at("scopeSpans").at(0).at("spans");
}

std::map<std::string, nlohmann::json> attributes_of(const nlohmann::json& span) {
  std::map<std::string, nlohmann::json> values;
  for (const nlohmann::json& attribute : span.at("attributes")) {
    EXPECT_EQ(attribute.at("value").size(), 1u);
    EXPECT_TRUE(values.emplace(attribute.at("key"), *attribute.at("value").begin()).second);
  }
  return values;
}

TEST(OtlpSpans, AGenerationIsOneSpanWithVllmsNames) {
  const nlohmann::json span = spans_of({generation_span()}).at(0);
  EXPECT_EQ(span["name"], "llm_request");
  EXPECT_EQ(span["kind"], 2);
  EXPECT_EQ(span["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span["spanId"], "b7ad6b7169203331");
  EXPECT_FALSE(span.contains("parentSpanId"));
  EXPECT_FALSE(span.contains("status"));
  EXPECT_EQ(span["startTimeUnixNano"], "1763709402123000000");
  EXPECT_EQ(span["endTimeUnixNano"], "1763709403123000000");
  auto attributes = attributes_of(span);
  EXPECT_EQ(attributes["gen_ai.request.id"], "abc");
  EXPECT_EQ(attributes["gen_ai.response.model"], "lexicon");
  EXPECT_EQ(attributes["gen_ai.request.n"], "2");
  EXPECT_EQ(attributes["gen_ai.request.max_tokens"], "64");
  EXPECT_EQ(attributes["gen_ai.request.temperature"], 0.5);
  EXPECT_FALSE(attributes.contains("gen_ai.request.top_p"));
  EXPECT_EQ(attributes["gen_ai.usage.prompt_tokens"], "120");
  EXPECT_EQ(attributes["gen_ai.usage.completion_tokens"], "128");
  EXPECT_EQ(attributes["gen_ai.latency.time_in_queue"], 0.25);
  EXPECT_EQ(attributes["gen_ai.latency.time_to_first_token"], 0.375);
  EXPECT_EQ(attributes["gen_ai.latency.e2e"], 1);
  EXPECT_EQ(attributes["gen_ai.latency.time_in_model_prefill"], 0.125);
  EXPECT_EQ(attributes["gen_ai.latency.time_in_model_decode"], 0.5);
  EXPECT_EQ(attributes["gen_ai.latency.time_in_model_inference"], 0.625);
  EXPECT_EQ(attributes["gen_ai.response.finish_reasons"]["values"][0]["stringValue"], "length");
  EXPECT_EQ(attributes["quire.steps"], "65");
  EXPECT_EQ(attributes["quire.preemptions"], "1");
  EXPECT_EQ(attributes["quire.cached_tokens"], "96");
  EXPECT_EQ(span.dump().find("owner-hash"), std::string::npos);
}

TEST(OtlpSpans, BelongsToItsClientsTrace) {
  Span one = generation_span();
  one.record.trace =
      TraceContext{.trace_id = one.trace_id, .parent_id = "00f067aa0ba902b7", .state = "a=\"1"};
  const nlohmann::json span = spans_of({one}).at(0);
  EXPECT_EQ(span["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(span["traceState"], "a=\"1");
}

TEST(OtlpSpans, SaysWhatFailed) {
  Span failed = generation_span();
  failed.record.status = 500;
  failed.record.output_tokens = 0;
  failed.record.error = "It is \"broken\" \xff";
  Span refused = generation_span();
  refused.record.status = 429;
  const std::vector<nlohmann::json> spans = spans_of({failed, refused});
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["status"]["code"], 2);
  EXPECT_EQ(spans[0]["status"]["message"], "It is \"broken\" \xEF\xBF\xBD");
  EXPECT_FALSE(attributes_of(spans[0]).contains("gen_ai.latency.time_to_first_token"));
  EXPECT_FALSE(spans[1].contains("status")) << "the client's fault is none of the service";
  EXPECT_EQ(attributes_of(spans[1])["http.response.status_code"], "429");
}

TEST(OtlpSpans, NoneIsValid) {
  EXPECT_TRUE(spans_of({}).empty());
}

}  // namespace
}  // namespace quire::server
