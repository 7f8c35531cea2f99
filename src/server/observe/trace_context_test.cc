#include "server/observe/trace_context.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::server {
namespace {

constexpr const char* kTrace = "0af7651916cd43dd8448eb211c80319c";
constexpr const char* kParent = "b7ad6b7169203331";

std::string traceparent(const std::string& version = "00", const std::string& trace = kTrace,
                        const std::string& parent = kParent, const std::string& flags = "01") {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(Traceparent, Valid) {
  const auto context = parse_traceparent(traceparent());
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_TRUE(context->sampled);
  EXPECT_FALSE(parse_traceparent(traceparent("00", kTrace, kParent, "00"))->sampled);
  EXPECT_FALSE(parse_traceparent(traceparent("00", kTrace, kParent, "fe"))->sampled);
  EXPECT_TRUE(parse_traceparent(traceparent("00", kTrace, kParent, "ff"))->sampled);
}

TEST(Traceparent, LaterVersionsMayHaveMore) {
  EXPECT_TRUE(parse_traceparent(traceparent("cc")));
  EXPECT_TRUE(parse_traceparent(traceparent("cc") + "-what-comes"));
  EXPECT_FALSE(parse_traceparent(traceparent("cc") + "what-comes"));
  EXPECT_FALSE(parse_traceparent(traceparent("00") + "-what-comes"));
}

TEST(Traceparent, InvalidOnesAreIgnored) {
  const std::string valid = traceparent();
  for (size_t length = 0; length < valid.size(); ++length) {
    EXPECT_FALSE(parse_traceparent(valid.substr(0, length))) << length;
  }
  EXPECT_FALSE(parse_traceparent(valid + "0"));
  EXPECT_FALSE(parse_traceparent(traceparent("ff")));
  EXPECT_FALSE(parse_traceparent(traceparent("00", std::string(32, '0'))));
  EXPECT_FALSE(parse_traceparent(traceparent("00", kTrace, std::string(16, '0'))));
  for (size_t at = 0; at < valid.size(); ++at) {
    for (const char wrong : {'G', 'A', ' ', '\0', '\xff'}) {
      std::string text = valid;
      text[at] = wrong;
      EXPECT_FALSE(parse_traceparent(text)) << at << " " << int{wrong};
    }
  }
}

TEST(TraceContextOf, TakesTheHeadersInAnyCase) {
  http::Request request;
  request.headers = {{"TraceParent", traceparent()}, {"Tracestate", "a=1"}, {"tracestate", "b=2"}};
  const auto context = trace_context_of(request);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_EQ(context->state, "a=1,b=2");
}

TEST(TraceContextOf, WhatIsWrongIsLeftOut) {
  http::Request request;
  EXPECT_FALSE(trace_context_of(request));
  request.headers = {{"tracestate", "a=1"}};
  EXPECT_FALSE(trace_context_of(request));
  request.headers = {{"traceparent", traceparent()}, {"traceparent", traceparent()}};
  EXPECT_FALSE(trace_context_of(request));
  for (const std::string& state : {std::string(513, 'a'), std::string("a=\x01")}) {
    request.headers = {{"traceparent", traceparent()}, {"tracestate", state}};
    const auto context = trace_context_of(request);
    ASSERT_TRUE(context);
    EXPECT_EQ(context->state, "");
  }
}

}  // namespace
}  // namespace quire::server
