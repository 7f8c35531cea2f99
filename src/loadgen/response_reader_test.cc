#include "loadgen/response_reader.h"

#include <gmock/gmock.h>

#include <string>

namespace quire::loadgen {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

constexpr const char* kStreamType = "text/event-stream; charset=utf-8";

std::string text_event(const std::string& text) {
  return R"(data: {"choices":[{"index":0,"text":")" + text + "\"}]}\n\n";
}

constexpr const char* kUsageEvent =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":4}}\n\n";
constexpr const char* kDone = "data: [DONE]\n\n";

TEST(ResponseReader, TimesTheEvents) {
  ResponseReader reader(10, true);
  reader.on_headers(200, kStreamType);
  EXPECT_TRUE(reader.on_body(": hello\n\n", 10.1));
  EXPECT_TRUE(reader.on_body(text_event("a"), 10.5));
  EXPECT_TRUE(reader.on_body(text_event("b") + text_event("c"), 11.0));
  EXPECT_TRUE(reader.on_body(text_event("") + kUsageEvent, 11.25));
  EXPECT_TRUE(reader.on_body(kDone, 11.5));
  const RequestResult result = reader.finish(200, "", 12);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded);
  EXPECT_DOUBLE_EQ(result.ttft_s, 0.5);
  EXPECT_DOUBLE_EQ(result.last_output_s, 1.0);
  EXPECT_DOUBLE_EQ(result.total_s, 1.5);
  EXPECT_THAT(result.itl_s, ElementsAre(FloatNear(0.5, 1e-6), FloatNear(0, 1e-6)));
  EXPECT_EQ(result.num_output_events, 3);
  EXPECT_EQ(result.input_tokens, 5);
  EXPECT_EQ(result.output_tokens, 4);
  EXPECT_EQ(result.text, "abc");
}

TEST(ResponseReader, WithoutUsageThereAreEventsAlone) {
  ResponseReader reader(0, false);
  reader.on_headers(200, "TEXT/Event-Stream");
  reader.on_body(text_event("a") + text_event("b") + kDone, 1);
  const RequestResult result = reader.finish(200, "", 1);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded);
  EXPECT_EQ(result.num_output_events, 2);
  EXPECT_FALSE(result.output_tokens);
  EXPECT_FALSE(result.input_tokens);
  EXPECT_EQ(result.text, "");
}

TEST(ResponseReader, AnAnswerWithoutTextIsAnAnswer) {
  ResponseReader reader(0, true);
  reader.on_headers(200, kStreamType);
  reader.on_body(std::string(kUsageEvent) + kDone, 2);
  const RequestResult result = reader.finish(200, "", 2);
  EXPECT_EQ(result.outcome, Outcome::kSucceeded);
  EXPECT_EQ(result.ttft_s, 2);
}

// The error that a response ends with.
std::string error_of(int status, const char* type, std::string_view body,
                     std::string_view transfer_error = "", Outcome outcome = Outcome::kFailed) {
  ResponseReader reader(0, true);
  reader.on_headers(status, type);
  const bool wanted = reader.on_body(body, 1);
  const RequestResult result =
      reader.finish(status, wanted ? transfer_error : "the transfer was cut", 1);
  EXPECT_EQ(result.outcome, outcome);
  return result.error;
}

TEST(ResponseReader, SaysWhatWentWrong) {
  EXPECT_EQ(error_of(500, "application/json", R"({"error":{"message":"boom"}})"), "HTTP 500: boom");
  EXPECT_EQ(
      error_of(429, "application/json", R"({"error":{"message":"full"}})", "", Outcome::kRejected),
      "HTTP 429: full");
  EXPECT_EQ(error_of(200, kStreamType, text_event("a")), "the stream ended without [DONE]");
  EXPECT_EQ(error_of(200, kStreamType, text_event("a"), "closed early"), "closed early");
  EXPECT_THAT(error_of(200, kStreamType, "data: {\"choi\n\n"), HasSubstr("no JSON object"));
  EXPECT_EQ(error_of(200, kStreamType, "data: {\"error\":{\"message\":\"gone\"}}\n\n"),
            "the stream ended with an error: gone");
  EXPECT_THAT(error_of(200, "application/json", "{\"choices\":[]}"),
              HasSubstr("type 'application/json' where text/event-stream was expected"));
  EXPECT_THAT(error_of(200, kStreamType, "data: " + std::string(5 << 20, 'x')),
              HasSubstr("longer than 4 MiB"));
}

TEST(ResponseReader, AResponseWithoutABody) {
  EXPECT_EQ(ResponseReader(0, true).finish(204, "", 1).error, "HTTP 204: an empty body");
  EXPECT_EQ(ResponseReader(0, true).finish(0, "cannot connect", 1).error, "cannot connect");
  EXPECT_THAT(ResponseReader(0, true).finish(200, "", 1).error, HasSubstr("type ''"));
}

TEST(ResponseReader, KeepsLittleOfALongErrorBody) {
  ResponseReader reader(0, true);
  reader.on_headers(502, "text/html");
  const std::string piece(100000, 'x');
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(reader.on_body(piece, 1));
  EXPECT_LE(reader.finish(502, "", 1).error.size(), kMaxErrorMessageBytes + 20);
}

}  // namespace
}  // namespace quire::loadgen
