// Generations through every end that they may come to, on an engine that computes nothing, with
// the test's thread as the I/O thread.
#include "server/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/api/api_schemas.h"
#include "server/api/json_schema.h"
#include "server/service_fixture.h"

namespace quire::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST_F(ServiceTest, AnswersWhole) {
  const auto exchange = complete(R"(, "max_tokens": 3, "n": 2)");
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 200);
  const auto body = body_of(*exchange);
  EXPECT_EQ(body["choices"].size(), 2u);
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 6);
  EXPECT_EQ(service().num_generations(), 0u);
}

TEST_F(ServiceTest, AnswersAsAStream) {
  const auto exchange = complete(R"(, "max_tokens": 3, "stream": true)");
  finish(*exchange);
  EXPECT_THAT(exchange->response->content_type, StartsWith("text/event-stream"));
  EXPECT_THAT(exchange->written, StartsWith("data: {"));
  EXPECT_THAT(exchange->written, EndsWith("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, RefusesWithOpenAIsErrors) {
  const auto expect = [this](const std::shared_ptr<FakeExchange>& exchange, int status,
                             const std::string& message) {
    finish(*exchange);
    EXPECT_EQ(exchange->response->status, status) << exchange->response->body;
    EXPECT_THAT(body_of(*exchange)["error"]["message"].get<std::string>(), HasSubstr(message));
  };
  expect(call("GET", "/nothing"), 404, "/nothing");
  expect(call("GET", "/v1/completions"), 405, "GET");
  EXPECT_THAT(call("GET", "/v1/completions")->response->headers,
              testing::Contains(testing::Pair("Allow", "POST")));
  EXPECT_THAT(call("POST", "/health")->response->headers,
              testing::Contains(testing::Pair("Allow", "GET, HEAD")));
  expect(call("POST", "/v1/completions", "{"), 400, "byte");
  expect(complete(R"(, "n": 0)"), 400, "n");
  expect(complete(R"(, "temperature": "hot")"), 400, "temperature");
  expect(complete(R"(, "max_tokens": 998)"), 400, "998");
  expect(call("POST", "/v1/completions", R"({"prompt": "text"})"), 400, "tokenizer");
  expect(
      call("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"),
      400, "chat template");
  expect(call("GET", "/v1/requests/unknown"), 404, "no record");
  EXPECT_EQ(service().num_generations(), 0u);
}

TEST_F(ServiceTest, QueuesAndThenRefuses) {
  engine_.hold(true);
  const auto first = complete(kEndless);
  const auto second = complete(kEndless);
  ASSERT_TRUE(loop_.run_until([&] { return first->response && second->response; }));
  const auto third = complete(R"(, "max_tokens": 1)");
  const auto fourth = complete(R"(, "max_tokens": 1)");
  const auto fifth = complete(R"(, "max_tokens": 1)");
  finish(*fifth);
  EXPECT_EQ(fifth->response->status, 429);
  bool has_retry_after = false;
  for (const auto& [name, value] : fifth->response->headers)
    has_retry_after |= name == "Retry-After";
  EXPECT_TRUE(has_retry_after);
  EXPECT_FALSE(third->complete);
  first->disconnect();
  second->disconnect();
  engine_.hold(false);
  finish(*third);
  finish(*fourth);
  EXPECT_EQ(third->response->status, 200);
  EXPECT_EQ(fourth->response->status, 200);
}

TEST_F(ServiceTest, AClientThatGoesIsForgottenInEveryState) {
  const auto preparing = complete(kEndless);
  preparing->disconnect();
  EXPECT_EQ(service().num_generations(), 0u);

  engine_.hold(true);
  const auto running = complete(kEndless);
  const auto also_running = complete(kEndless);
  ASSERT_TRUE(loop_.run_until([&] { return running->response && also_running->response; }));
  const auto queued = complete(kEndless);
  ASSERT_TRUE(loop_.run_until([&] { return service().num_generations() == 3; }));
  queued->disconnect();
  running->disconnect();
  also_running->disconnect();
  engine_.hold(false);
  ASSERT_TRUE(loop_.run_until([&] { return service().num_generations() == 0; }));
  wait_until_engine_idle();
  EXPECT_FALSE(queued->response);
}

TEST_F(ServiceTest, AGenerationWhoseLastOutputCannotBeSentEndsWithAnError) {
  const auto exchange = complete(R"(, "max_tokens": 1, "stream": true)");
  exchange->next_write_fails = true;
  finish(*exchange);
  EXPECT_THAT(exchange->written, HasSubstr("service_unavailable"));
  EXPECT_EQ(service().num_generations(), 0u);
}

TEST_F(ServiceTest, AWholeAnswerThatNeverArrivedCountsAsADisconnect) {
  const auto read = complete(R"(, "max_tokens": 3)");
  const auto unread = complete(R"(, "max_tokens": 3)");
  unread->is_read = false;
  finish(*read);
  finish(*unread);
  ASSERT_TRUE(loop_.run_until([&] { return service().num_generations() == 0; }));
  const auto metrics = [this] { return call("GET", "/metrics")->response->body; };
  const std::string answered =
      R"(quire:http_responses_total{path="/v1/completions",status="200"} )";
  EXPECT_THAT(metrics(), HasSubstr(answered + "1"));
  EXPECT_THAT(metrics(),
              HasSubstr("quire:client_disconnects_total{engine=\"0\",model_name=\"\"} 0"));
  unread->disconnect();
  EXPECT_THAT(metrics(), HasSubstr(answered + "2"));
  EXPECT_THAT(metrics(),
              HasSubstr("quire:client_disconnects_total{engine=\"0\",model_name=\"\"} 1"));
  EXPECT_THAT(metrics(), HasSubstr("finished_reason=\"abort\",model_name=\"\"} 1"));
}

TEST_F(ServiceTest, ALargeWholeAnswerIsSentInPieces) {
  const auto exchange = complete(R"(, "max_tokens": 900, "n": 128, "return_token_ids": true)");
  ASSERT_TRUE(loop_.run_until([&] {  // the last piece is sent by a worker
    if (exchange->complete) return true;
    loop_.post([] {});
    std::this_thread::yield();
    return false;
  }));
  EXPECT_EQ(exchange->response->status, 200);
  EXPECT_EQ(exchange->response->content_type, "application/json");
  EXPECT_EQ(exchange->response->body, "");
  const auto body = nlohmann::json::parse(exchange->written);
  EXPECT_EQ(body["choices"].size(), 128u);
  EXPECT_EQ(body["choices"][127]["token_ids"].size(), 900u);
}

TEST_F(ServiceTest, RefusesAnAnswerThatWouldBeTooLong) {
  config_.max_response_bytes = 4000;
  const auto allowed = complete(R"(, "max_tokens": 1, "prompt_logprobs": 5)");
  finish(*allowed);
  EXPECT_EQ(allowed->response->status, 200);
  const auto refused = complete(R"(, "max_tokens": 1, "prompt_logprobs": 5, "n": 3)");
  finish(*refused);
  EXPECT_EQ(refused->response->status, 400);
  EXPECT_THAT(refused->response->body, HasSubstr("at most 4000 (--max-response-bytes)"));
  const auto too_long = complete(R"(, "max_tokens": 900, "n": 10)");  // seen as it grows
  finish(*too_long);
  EXPECT_EQ(too_long->response->status, 400);
  const auto streamed = complete(R"(, "max_tokens": 900, "n": 10, "stream": true)");
  finish(*streamed);
  EXPECT_EQ(streamed->response->status, 200);
}

TEST_F(ServiceTest, MemoryIsChargedAndGivenBack) {
  config_.max_server_memory = 3000;
  const std::string top = R"(, "prompt_logprobs": 10, "max_tokens": 9)";
  engine_.hold(true);
  const auto first = complete(top);
  ASSERT_TRUE(loop_.run_until([&] {
    if (engine_.stats().num_running == 1) return true;
    loop_.post([] {});
    std::this_thread::yield();
    return false;
  }));
  const auto second = complete(top);
  finish(*second);
  EXPECT_EQ(second->response->status, 429);
  EXPECT_THAT(second->response->body, HasSubstr("--max-server-memory"));
  bool has_retry_after = false;
  for (const auto& [name, value] : second->response->headers)
    has_retry_after |= name == "Retry-After";
  EXPECT_TRUE(has_retry_after);
  const auto never = complete(R"(, "prompt_logprobs": 20, "max_tokens": 1)");
  finish(*never);
  EXPECT_EQ(never->response->status, 413);
  const auto memory = [this] {
    const std::string text = call("GET", "/metrics")->response->body;
    const std::string name = "\nquire:request_memory_bytes{engine=\"0\",model_name=\"\"} ";
    return std::stod(text.substr(text.find(name) + name.size()));
  };
  EXPECT_GT(memory(), 1000);
  EXPECT_THAT(call("GET", "/metrics")->response->body,
              HasSubstr("quire:request_memory_refused_total{engine=\"0\",model_name=\"\"} 1"));
  engine_.hold(false);
  finish(*first);
  EXPECT_EQ(memory(), 0);
  const auto third = complete(top);
  finish(*third);
  EXPECT_EQ(third->response->status, 200);
}

TEST_F(ServiceTest, ASlowReaderIsWaitedForAndLosesNothing) {
  const auto exchange = complete(R"(, "max_tokens": 900, "stream": true)");
  exchange->buffered_bytes = 1 << 20;
  wait_until_engine_idle();  // which computed on without it
  ASSERT_TRUE(loop_.run_until([&] { return exchange->response.has_value(); }));
  const size_t written = exchange->written.size();
  loop_.post([] {});
  EXPECT_FALSE(exchange->complete);
  EXPECT_EQ(exchange->written.size(), written);
  exchange->buffered_bytes = 0;
  exchange->drained();
  finish(*exchange);
  std::string text;
  for (size_t at = 0; (at = exchange->written.find("\"text\":\"", at)) != std::string::npos;) {
    at += 8;
    text += exchange->written.substr(at, exchange->written.find('"', at) - at);
  }
  EXPECT_EQ(text, std::string(900, 'x'));
}

TEST_F(ServiceTest, SlowReadersHoldNoPlaceOnceTheEngineIsDone) {
  engine_.hold(true);
  const std::vector slow = {complete(kEndless), complete(kEndless)};
  for (const auto& exchange : slow) {
    ASSERT_TRUE(loop_.run_until([&] { return exchange->response.has_value(); }));
    exchange->buffered_bytes = 1 << 20;
  }
  engine_.hold(false);
  const auto quick = complete(R"(, "max_tokens": 1)");
  finish(*quick);
  EXPECT_EQ(quick->response->status, 200);
  for (const auto& exchange : slow) {
    EXPECT_FALSE(exchange->complete);
    exchange->buffered_bytes = 0;
    exchange->drained();
    finish(*exchange);
    EXPECT_THAT(exchange->written, EndsWith("data: [DONE]\n\n"));
  }
}

TEST_F(ServiceTest, LongAnswersAreWrittenDownOnAWorker) {
  const auto exchange = complete(R"(, "max_tokens": 900, "n": 4)");
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 200);
  EXPECT_EQ(body_of(*exchange)["usage"]["completion_tokens"], 3600);
  ASSERT_TRUE(loop_.run_until([this] { return service().num_generations() == 0; }));
}

TEST_F(ServiceTest, ARequestIsNoLargerThanTheEngine) {
  std::string prompts = "[1]";
  for (int i = 0; i < 128; ++i) prompts += ", [1]";
  const auto exchange = call("POST", "/v1/completions", R"({"prompt": [)" + prompts + "]}");
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 400);
  EXPECT_THAT(exchange->response->body, HasSubstr("129 answers"));
}

TEST_F(ServiceTest, ADeadlineEndsItWithWhatItHas) {
  engine_.hold(true);
  const auto exchange = complete(R"(, "max_tokens": 990, "timeout": 0.05)");
  const auto sent = std::chrono::steady_clock::now();
  ASSERT_TRUE(loop_.run_until([&] {
    loop_.post([] {});
    return std::chrono::steady_clock::now() > sent + std::chrono::milliseconds(300);
  }));
  engine_.hold(false);  // it gets no token more
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 200);
  const auto choice = body_of(*exchange)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["stop_reason"], "timeout");
  EXPECT_LT(choice["text"].get<std::string>().size(), 990u);
}

TEST_F(ServiceTest, ADeadlineInTheQueueIsARefusal) {
  engine_.hold(true);
  const auto first = complete(kEndless);
  const auto second = complete(kEndless);
  const auto queued = complete(R"(, "timeout": 0.05)");
  finish(*queued);
  EXPECT_EQ(queued->response->status, 429);
  engine_.hold(false);
}

TEST_F(ServiceTest, WhoWaitsTooLongIsRefused) {
  config_.max_queue_time_s = 0.05;
  engine_.hold(true);
  const auto first = complete(kEndless);
  const auto second = complete(kEndless);
  const auto queued = complete("");
  finish(*queued);
  EXPECT_EQ(queued->response->status, 429);
  EXPECT_THAT(queued->response->body, HasSubstr("--max-queue-time"));
  engine_.hold(false);
  finish(*first);
}

TEST_F(ServiceTest, AFailedEngineFailsItsRequestsAndIsReported) {
  engine_.hold(true);
  const auto stream = complete(kEndless);
  ASSERT_TRUE(loop_.run_until([&] { return stream->response.has_value(); }));
  engine_.fail();
  finish(*stream);
  EXPECT_THAT(stream->written, HasSubstr("\"error\""));
  EXPECT_FALSE(engine_error_.empty());
  EXPECT_EQ(call("GET", "/health")->response->status, 503);
  const auto late = complete("");
  finish(*late);
  EXPECT_EQ(late->response->status, 500);
}

TEST_F(ServiceTest, AFailedRequestIsAnErrorToItsClientOnly) {
  engine_.hold(true);
  const auto stream = complete(kEndless);
  const auto whole = complete(R"(, "max_tokens": 990)");
  ASSERT_TRUE(loop_.run_until(
      [&] { return stream->response.has_value() && engine_.stats().num_running == 2; }));
  engine_.fail_requests("The logits are no numbers.");
  engine_.hold(false);
  finish(*stream);
  finish(*whole);
  EXPECT_EQ(whole->response->status, 500);
  EXPECT_EQ(body_of(*whole)["error"]["type"], "server_error");
  EXPECT_EQ(body_of(*whole)["error"]["message"], "The logits are no numbers.");
  EXPECT_THAT(stream->written, HasSubstr("\"error\""));
  EXPECT_THAT(stream->written, HasSubstr("The logits are no numbers."));
  EXPECT_TRUE(engine_error_.empty());
  ASSERT_TRUE(loop_.run_until([this] { return service().num_generations() == 0; }));
  const auto next = complete(R"(, "max_tokens": 2)");
  finish(*next);
  EXPECT_EQ(next->response->status, 200);
}

TEST_F(ServiceTest, AGpuWithoutMemoryIsAReasonToComeAgain) {
  engine_.hold(true);
  const auto exchange = complete(R"(, "max_tokens": 990)");
  ASSERT_TRUE(loop_.run_until([&] {
    if (engine_.stats().num_running == 1) return true;
    loop_.post([] {});
    return false;
  }));
  engine_.fail_requests("The GPU had no memory.", /*out_of_memory=*/true);
  engine_.hold(false);
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 503);
  EXPECT_EQ(body_of(*exchange)["error"]["type"], "service_unavailable_error");
  EXPECT_EQ(body_of(*exchange)["error"]["message"], "The GPU had no memory.");
  EXPECT_THAT(exchange->response->headers, testing::Contains(testing::Pair("Retry-After", "1")));
}

TEST_F(ServiceTest, OneFailedPromptFailsTheRequest) {
  engine_.hold(true);
  const auto exchange =
      call("POST", "/v1/completions", R"({"prompt": [[1], [2], [3]], "max_tokens": 990, "n": 2})");
  ASSERT_TRUE(loop_.run_until([&] { return engine_.stats().num_running == 3; }));
  engine_.fail_requests("The logits are no numbers.");
  engine_.hold(false);
  finish(*exchange);
  EXPECT_EQ(exchange->response->status, 500);
  ASSERT_TRUE(loop_.run_until([this] { return service().num_generations() == 0; }));
  wait_until_engine_idle();
}

TEST_F(ServiceTest, ShuttingDownFinishesWhatItAccepted) {
  engine_.hold(true);
  const auto accepted = complete(R"(, "max_tokens": 500)");
  service().begin_shutdown();
  const auto late = complete("");
  EXPECT_EQ(late->response->status, 503);
  EXPECT_EQ(call("GET", "/ready")->response->status, 503);
  EXPECT_EQ(call("GET", "/health")->response->status, 200);
  engine_.hold(false);
  finish(*accepted);
  EXPECT_EQ(accepted->response->status, 200);
}

TEST_F(ServiceTest, CutShortEndsWithWhatThereIs) {
  engine_.hold(true);
  const auto stream = complete(kEndless);
  ASSERT_TRUE(loop_.run_until([&] { return stream->response.has_value(); }));
  service().cut_short();
  engine_.hold(false);
  finish(*stream);
  EXPECT_THAT(stream->written, EndsWith("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, ExplainsARecentRequestToItsOwner) {
  config_.api_keys = {"mine", "yours"};
  const http::Headers mine = {{"Authorization", "Bearer mine"}, {"X-Request-Id", "abc"}};
  const auto exchange =
      call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 2})", mine);
  finish(*exchange);
  EXPECT_EQ(body_of(*exchange)["id"], "cmpl-abc");
  const auto explained = call("GET", "/v1/requests/cmpl-abc", "", mine);
  EXPECT_EQ(explained->response->status, 200);
  EXPECT_THAT(explained->response->body, HasSubstr("abc"));
  const http::Headers yours = {{"Authorization", "Bearer yours"}};
  EXPECT_EQ(call("GET", "/v1/requests/abc", "", yours)->response->status, 404);
}

TEST_F(ServiceTest, ExplainsWhatIsUnderWay) {
  config_.api_keys = {"mine", "yours"};
  const http::Headers yours = {{"Authorization", "Bearer yours"}};
  const auto as_mine = [](const std::string& id) {
    return http::Headers{{"Authorization", "Bearer mine"}, {"X-Request-Id", id}};
  };
  const auto facts_of = [&](const std::string& id) {
    return body_of(*call("GET", "/v1/requests/" + id, "", as_mine("reader")));
  };
  const std::string endless = R"({"prompt": [1, 2, 3])" + std::string(kEndless) + "}";
  engine_.hold(true);
  const auto first = call("POST", "/v1/completions", endless, as_mine("first"));
  const auto second = call("POST", "/v1/completions", endless, as_mine("second"));
  ASSERT_TRUE(loop_.run_until([&] { return first->response && second->response; }));
  const auto third = call("POST", "/v1/completions", endless, as_mine("third"));
  EXPECT_EQ(facts_of("third")["state"], "queued");
  EXPECT_TRUE(facts_of("third")["status"].is_null());
  EXPECT_EQ(facts_of("first")["state"], "running");
  EXPECT_EQ(facts_of("cmpl-first")["id"], "first");
  EXPECT_EQ(call("GET", "/v1/requests/first", "", yours)->response->status, 404);
  first->disconnect();
  EXPECT_EQ(facts_of("first")["state"], "finished");
  EXPECT_EQ(facts_of("first")["client_disconnected"], true);
  EXPECT_FALSE(JsonSchemas(response_schemas()).check("RequestFacts", facts_of("first")));
  EXPECT_FALSE(JsonSchemas(response_schemas()).check("RequestFacts", facts_of("third")));
}

TEST_F(ServiceTest, KeepsAsManyFinishedRequestsAsItMay) {
  config_.request_log.max_requests = 1;
  for (const char* id : {"a", "b"}) {
    const auto exchange = call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 1})",
                               {{"X-Request-Id", id}});
    finish(*exchange);
  }
  EXPECT_EQ(call("GET", "/v1/requests/a")->response->status, 404);
  EXPECT_EQ(call("GET", "/v1/requests/b")->response->status, 200);
}

}  // namespace
}  // namespace quire::server
