// Generations through every end that they may come to, on an engine that computes nothing, with
// the test's thread as the I/O thread.
#include "server/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>

#include "server/api/api_schemas.h"
#include "server/api/json_schema.h"
#include "server/mock_engine.h"

namespace quire::server {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// What the I/O thread does: runs what is posted, here until something holds.
class IoLoop {
 public:
  void post(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
  }
  // False if it does not come to hold for very long.
  template <typename Condition>
  bool run_until(Condition holds) {
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        if (!added_.wait_until(lock, give_up, [this] { return !tasks_.empty(); })) return false;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
};

class FakeExchange : public http::Exchange {
 public:
  explicit FakeExchange(http::Request request) : request_(std::move(request)) {}

  const http::Request& request() const override { return request_; }
  std::string take_body() override { return std::move(request_.body); }
  void respond(http::Response given) override {
    EXPECT_FALSE(response) << "answered twice";
    response = std::move(given);
    complete = true;
    tell_end();
  }
  void begin_stream(http::Response head) override {
    EXPECT_FALSE(response) << "answered twice";
    response = std::move(head);
  }
  void write(std::string piece) override {
    EXPECT_FALSE(complete) << "written after the end";
    if (std::exchange(next_write_fails, false)) throw std::bad_alloc();
    if (gone) return;
    written += piece;
    if (piece.size() <= kStreamHighWater || !is_read || !drained) return;
    const auto callback = drained;  // which may be replaced while it runs
    callback();
  }
  void finish() override {
    complete = true;
    tell_end();
  }
  size_t buffered() const override { return buffered_bytes; }
  void on_drain(std::function<void()> callback) override { drained = std::move(callback); }
  void on_closed(std::function<void()> callback) override { closed_callback = std::move(callback); }
  bool closed() const override { return gone; }
  void on_end(std::function<void(bool delivered)> callback) override {
    end_callback = std::move(callback);
    tell_end();
  }

  void disconnect() {
    gone = true;
    if (!complete && closed_callback) std::exchange(closed_callback, {})();
    tell_end();
  }

  std::optional<http::Response> response;
  std::string written;
  std::atomic<bool> complete = false;  // set on a worker for an answer in pieces
  std::atomic<bool> gone = false;      // workers look, too
  size_t buffered_bytes = 0;
  bool next_write_fails = false;
  std::function<void()> drained;
  bool is_read = true;  // the client takes what is sent
  std::function<void()> closed_callback;
  std::function<void(bool delivered)> end_callback;

 private:
  void tell_end() {
    if (end_callback && (gone || (complete && is_read))) std::exchange(end_callback, {})(!gone);
  }

  http::Request request_;
};

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.admission = {.max_num_queued_requests = 2, .max_num_seqs = 2};
    config_.metrics.max_model_len = 1000;
    config_.num_workers = 1;
    model_.id = "mock";
    model_.max_model_len = 1000;
    model_.vocab_size = 100;
  }
  void TearDown() override {
    if (!service_) return;
    engine_.hold(false);
    service_->cut_short();
    EXPECT_TRUE(loop_.run_until([this] { return service_->num_generations() == 0; }));
  }

  Service& service() {
    if (!service_) {
      service_ = std::make_unique<Service>(
          config_, model_,
          ServiceEnvironment{
              .engine = engine_,
              .log = log_,
              .post = [this](std::function<void()> task) { loop_.post(std::move(task)); },
              .http_stats = [] { return http::Stats{}; },
              .engine_failed = [this](const std::string& message) { engine_error_ = message; }});
    }
    return *service_;
  }
  std::shared_ptr<FakeExchange> call(const std::string& method, const std::string& path,
                                     const std::string& body = "", http::Headers headers = {}) {
    http::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = std::move(headers);
    request.remote = "127.0.0.1";
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    service().handle(exchange);
    return exchange;
  }
  std::shared_ptr<FakeExchange> complete(const std::string& fields) {
    return call("POST", "/v1/completions", R"({"prompt": [1, 2, 3])" + fields + "}");
  }
  void finish(const FakeExchange& exchange) {
    ASSERT_TRUE(loop_.run_until([&] { return exchange.complete.load(); }));
  }
  nlohmann::json body_of(const FakeExchange& exchange) {
    return nlohmann::json::parse(exchange.response->body);
  }
  // How many it has taken so far, as the mock counts them.
  int64_t engine_tokens() { return engine_.stats().generation_tokens; }
  void wait_until_engine_idle() {
    ASSERT_TRUE(loop_.run_until([this] {
      if (engine_.stats().num_running == 0) return true;
      loop_.post([] {});
      std::this_thread::yield();
      return false;
    }));
  }

  IoLoop loop_;
  MockEngine engine_{"x"};  // free
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> nowhere_{std::fopen("/dev/null", "w"),
                                                           std::fclose};
  AccessLog log_{{.fd = fileno(nowhere_.get())}};
  ServiceConfig config_;
  ModelInfo model_;
  std::unique_ptr<Service> service_;
  std::string engine_error_;
};

constexpr const char* kEndless = R"(, "max_tokens": 990, "stream": true)";

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

TEST_F(ServiceTest, KeysProtectAllButTheProbes) {
  config_.api_keys = {"secret"};
  for (const char* path : {"/v1/models", "/metrics", "/openapi.json"}) {
    EXPECT_EQ(call("GET", path)->response->status, 401) << path;
    const http::Headers wrong = {{"Authorization", "Bearer guess"}};
    EXPECT_EQ(call("GET", path, "", wrong)->response->status, 401) << path;
    const http::Headers right = {{"Authorization", "Bearer secret"}};
    EXPECT_EQ(call("GET", path, "", right)->response->status, 200) << path;
  }
  for (const char* path : {"/health", "/ready", "/version", "/"}) {
    EXPECT_EQ(call("GET", path)->response->status, 200) << path;
  }
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

// The events of a stream, each with its id and its end.
std::vector<std::string> events_of(std::string_view text) {
  std::vector<std::string> events;
  for (size_t end = text.find("\n\n"); end != std::string_view::npos; end = text.find("\n\n")) {
    events.emplace_back(text.substr(0, end + 2));
    text.remove_prefix(end + 2);
  }
  return events;
}

class ResumedStreamTest : public ServiceTest {
 protected:
  // A stream of the engine's pace, whose id is "abc".
  std::shared_ptr<FakeExchange> start(int max_tokens, http::Headers headers = {}) {
    headers.emplace_back("X-Request-Id", "abc");
    return call("POST", "/v1/completions",
                fmt::format(R"({{"prompt": [1, 2, 3], "stream": true, "max_tokens": {},
                                "stream_options": {{"resumable": true}}}})",
                            max_tokens),
                std::move(headers));
  }
  std::shared_ptr<FakeExchange> resume(const std::string& last_event_id,
                                       http::Headers headers = {}) {
    if (!last_event_id.empty()) headers.emplace_back("Last-Event-ID", last_event_id);
    return call("GET", "/v1/requests/abc/events", "", std::move(headers));
  }
  void wait_for_events(const FakeExchange& exchange, size_t at_least) {
    ASSERT_TRUE(loop_.run_until([&] { return events_of(exchange.written).size() >= at_least; }));
  }
};

TEST_F(ResumedStreamTest, GoesOnToTheByte) {
  const auto whole = start(20);
  finish(*whole);
  const std::vector<std::string> events = events_of(whole->written);
  ASSERT_GE(events.size(), 2u);
  EXPECT_THAT(events[0], StartsWith("id: 1\ndata: {"));
  EXPECT_THAT(events.back(), EndsWith("\ndata: [DONE]\n\n"));
  for (size_t had = 0; had <= events.size(); ++had) {
    const auto resumed = resume(had == 0 ? "" : std::to_string(had));
    EXPECT_EQ(resumed->response->status, 200);
    EXPECT_THAT(resumed->response->content_type, StartsWith("text/event-stream"));
    std::string expected;
    for (size_t i = had; i < events.size(); ++i) expected += events[i];
    EXPECT_EQ(resumed->written, expected) << had;
    EXPECT_TRUE(resumed->complete);
  }
}

TEST_F(ResumedStreamTest, TheGenerationGoesOnWithoutItsClient) {
  engine_.hold(true);
  const auto first = start(20);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  EXPECT_EQ(body_of(*call("GET", "/v1/requests/abc"))["state"], "running");
  engine_.hold(false);
  ASSERT_TRUE(loop_.run_until([this] { return service().num_generations() == 0; }));
  const auto second = resume("");
  EXPECT_THAT(second->written, EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(second->complete);
  EXPECT_EQ(body_of(*call("GET", "/v1/requests/abc"))["usage"]["completion_tokens"], 20);
}

TEST_F(ResumedStreamTest, AClientThatIsBackTakesOverFromOneThatSeemsToBeThere) {
  engine_.hold(true);
  const auto first = start(20);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  const auto second = resume("");
  engine_.hold(false);
  finish(*second);
  EXPECT_FALSE(first->complete) << "it is cut off";
  EXPECT_EQ(events_of(second->written).size(),
            std::stoul(second->written.substr(second->written.rfind("id: ") + 4)));
  first->disconnect();
  EXPECT_EQ(resume("1")->response->status, 200);
}

TEST_F(ResumedStreamTest, OnlyItsOwnerMay) {
  config_.api_keys = {"mine", "yours"};
  const http::Headers mine = {{"Authorization", "Bearer mine"}};
  const auto whole = start(3, mine);
  finish(*whole);
  EXPECT_EQ(resume("", {{"Authorization", "Bearer yours"}})->response->status, 404);
  EXPECT_EQ(resume("")->response->status, 401);
  EXPECT_EQ(resume("", mine)->response->status, 200);
}

TEST_F(ResumedStreamTest, RefusesWhatItDoesNotHave) {
  EXPECT_EQ(resume("")->response->status, 404);
  const auto whole = start(3);
  finish(*whole);
  const size_t last = events_of(whole->written).size();
  EXPECT_EQ(resume(std::to_string(last))->response->status, 200);
  for (const std::string& wrong : {std::to_string(last + 1), std::string("-1"), std::string("x"),
                                   std::string("99999999999999999999")}) {
    EXPECT_EQ(resume(wrong)->response->status, 400) << wrong;
  }
  EXPECT_EQ(call("HEAD", "/v1/requests/abc/events")->response->status, 405);
  const auto plain =
      call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 1, "stream": true})",
           {{"X-Request-Id", "plain"}});
  finish(*plain);
  EXPECT_EQ(call("GET", "/v1/requests/plain/events")->response->status, 404);
  EXPECT_EQ(call("GET", "/v1/requests/cmpl-abc/events")->response->status, 200);
}

TEST_F(ResumedStreamTest, WithoutAClientItEndsInTime) {
  config_.resumable.resume_within = std::chrono::milliseconds(1);
  engine_.hold(true);
  const auto first = start(900);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  ASSERT_TRUE(loop_.run_until([this] {
    return body_of(*call("GET", "/v1/requests/abc"))["state"] == "finished" ||
           (loop_.post([] {}), false);
  }));
  const auto facts = body_of(*call("GET", "/v1/requests/abc"));
  EXPECT_EQ(facts["client_disconnected"], true);
  EXPECT_EQ(facts["finish_reason"], "abort");
  EXPECT_EQ(resume("")->response->status, 404);
  engine_.hold(false);
  wait_until_engine_idle();
}

TEST_F(ResumedStreamTest, WaitsOnceTooMuchIsKept) {
  config_.resumable.max_stream_bytes = 2000;
  engine_.hold(true);
  const auto first = start(400);
  ASSERT_TRUE(loop_.run_until([&] { return first->response.has_value(); }));
  first->disconnect();
  engine_.hold(false);
  wait_until_engine_idle();
  const auto second = resume("");
  finish(*second);
  const std::vector<std::string> events = events_of(second->written);
  EXPECT_THAT(events.front(), StartsWith("id: 1\n")) << "nothing was lost while it was away";
  EXPECT_THAT(second->written, EndsWith("data: [DONE]\n\n"));
}

// The streams themselves, with the test in the generation's place.
class ResumableStreamsTest : public ServiceTest {
 protected:
  static constexpr const char* kEvent = "data: 0123456789\n\n";
  static constexpr size_t kEventBytes = 24;  // with an id of one digit

  std::shared_ptr<ResumableStreams> make(ResumableConfig config) {
    return std::make_shared<ResumableStreams>(
        config, timers_, [this](std::function<void()> task) { loop_.post(std::move(task)); });
  }
  static std::shared_ptr<FakeExchange> client() {
    return std::make_shared<FakeExchange>(http::Request{});
  }
  static int status_of(ResumableStreams& streams, const std::string& event) {
    const auto exchange = client();
    try {
      streams.resume(exchange, {}, "me", "abc", event);
      return exchange->response->status;
    } catch (const ApiError& error) {
      return error.status;
    }
  }

  TimerQueue timers_;
};

TEST_F(ResumableStreamsTest, WhatIsOldIsGone) {
  const auto streams = make({.max_stream_bytes = 6 * kEventBytes});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  stream->begin_stream({});
  for (int i = 0; i < 9; ++i) stream->write(kEvent);
  EXPECT_EQ(events_of(first->written).size(), 9u);
  EXPECT_EQ(streams->bytes(), 3 * kEventBytes) << "half of what may be kept";
  EXPECT_EQ(status_of(*streams, "5"), 410);
  EXPECT_EQ(status_of(*streams, ""), 410);
  EXPECT_EQ(status_of(*streams, "10"), 400);
  const auto second = client();
  streams->resume(second, {}, "me", "abc", "6");
  EXPECT_EQ(second->written, fmt::format("id: 7\n{0}id: 8\n{0}id: 9\n{0}", kEvent));
}

TEST_F(ResumableStreamsTest, AFullOneHasItsGenerationWait) {
  const auto streams = make({.max_stream_bytes = 6 * kEventBytes});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  int drained = 0;
  stream->on_drain([&drained] { ++drained; });
  stream->begin_stream({});
  stream->write(kEvent);
  first->disconnect();
  int written = 1;
  for (; stream->buffered() <= http::Exchange::kStreamHighWater; ++written) stream->write(kEvent);
  EXPECT_EQ(written, 6);
  EXPECT_FALSE(stream->closed());
  drained = 0;
  const auto second = client();
  streams->resume(second, {}, "me", "abc", "1");
  EXPECT_EQ(drained, 1);
  EXPECT_EQ(events_of(second->written).size(), 5u);
  EXPECT_EQ(stream->buffered(), 0u);
}

TEST_F(ResumableStreamsTest, AClientThatReadsSlowlyGetsWhatItTakes) {
  const auto streams = make({});
  const auto first = client();
  const auto stream = streams->adopt(first, "me", "abc");
  stream->begin_stream({});
  for (int i = 0; i < 5; ++i) stream->write(kEvent);
  const auto slow = client();
  slow->buffered_bytes = http::Exchange::kStreamHighWater + 1;
  streams->resume(slow, {}, "me", "abc", "");
  EXPECT_EQ(slow->written, "");
  EXPECT_GT(stream->buffered(), http::Exchange::kStreamHighWater);
  stream->finish();
  EXPECT_FALSE(slow->complete);
  slow->buffered_bytes = 0;
  slow->drained();
  EXPECT_EQ(events_of(slow->written).size(), 5u);
  EXPECT_TRUE(slow->complete);
}

TEST_F(ResumableStreamsTest, AllTogetherKeepNoMoreThanTheyMay) {
  const auto streams = make({.max_bytes = 10 * kEventBytes});
  for (int i = 0; i < 20; ++i) {
    const auto stream = streams->adopt(client(), "me", std::to_string(i));
    stream->begin_stream({});
    stream->write(kEvent);
    stream->finish();
  }
  EXPECT_LE(streams->bytes(), 10 * kEventBytes);
  const auto newest = client();
  streams->resume(newest, {}, "me", "19", "");
  EXPECT_EQ(events_of(newest->written).size(), 1u);
  EXPECT_THROW(streams->resume(client(), {}, "me", "0", ""), ApiError);
}

TEST_F(ResumableStreamsTest, SaysWhetherTheLastClientGotAll) {
  const auto streams = make({});
  for (const bool delivered : {true, false}) {
    const auto first = client();
    first->is_read = delivered;
    auto stream = streams->adopt(first, "me", "abc");
    stream->begin_stream({});
    stream->write(kEvent);
    stream->finish();
    std::optional<bool> said;
    stream->on_end([&said](bool all) { said = all; });
    stream.reset();  // the generation is over
    if (!delivered) {
      first->disconnect();
      EXPECT_FALSE(said) << "somebody may come back";
      streams->resume(client(), {}, "me", "abc", "");
    }
    ASSERT_TRUE(loop_.run_until([&said] { return said.has_value(); }));
    EXPECT_TRUE(*said);
  }
}

TEST_F(ResumedStreamTest, ARefusalIsAnAnswerLikeAnyOther) {
  const auto refused = start(998);
  finish(*refused);
  EXPECT_EQ(refused->response->status, 400);
  EXPECT_EQ(resume("")->response->status, 404);
}

TEST_F(ServiceTest, OtherOriginsAreLetInOnlyWhereAllowed) {
  const http::Headers preflight = {{"Origin", "https://a.example"},
                                   {"Access-Control-Request-Method", "POST"}};
  EXPECT_EQ(call("OPTIONS", "/v1/completions", "", preflight)->response->status, 405);
  service_.reset();
  config_.allowed_origins = {"https://a.example"};
  const auto allowed = call("OPTIONS", "/v1/completions", "", preflight);
  EXPECT_EQ(allowed->response->status, 204);
  EXPECT_THAT(allowed->response->headers,
              testing::Contains(testing::Pair("Access-Control-Allow-Origin", "https://a.example")));
  const http::Headers other = {{"Origin", "https://b.example"}};
  const auto denied = call("GET", "/version", "", other);
  EXPECT_THAT(denied->response->headers,
              testing::Not(testing::Contains(testing::Key("Access-Control-Allow-Origin"))));
}

TEST_F(ServiceTest, TheHeadSaysWhetherABodyIsRead) {
  config_.api_keys = {"secret"};
  const auto wants = [this](const std::string& method, const std::string& path,
                            http::Headers headers) {
    http::Request head;
    head.method = method;
    head.path = path;
    head.headers = std::move(headers);
    return service().wants_body(head);
  };
  const std::pair<std::string, std::string> key = {"Authorization", "Bearer secret"};
  EXPECT_TRUE(wants("POST", "/v1/completions", {key}));
  EXPECT_TRUE(wants("POST", "/tokenize/", {key}));
  EXPECT_FALSE(wants("POST", "/v1/completions", {}));
  EXPECT_FALSE(wants("POST", "/v1/completions", {{"Authorization", "Bearer guess"}}));
  EXPECT_FALSE(wants("POST", "/v1/completions", {key, {"Content-Encoding", "gzip"}}));
  EXPECT_FALSE(wants("PUT", "/v1/completions", {key}));
  EXPECT_FALSE(wants("POST", "/nothing", {key}));
  EXPECT_FALSE(wants("POST", "/", {key}));
  EXPECT_FALSE(wants("GET", "/", {}));
}

TEST_F(ServiceTest, PagesOfOthersAreNotTrusted) {
  config_.doors.trusts_its_machine = true;
  const std::string body = R"({"prompt": [1], "max_tokens": 2})";
  const auto status = [&](const std::string& host, const std::string& origin,
                          const std::string& type) {
    const auto exchange = call("POST", "/v1/completions", body,
                               {{"Host", host}, {"Origin", origin}, {"Content-Type", type}});
    finish(*exchange);
    return exchange->response->status;
  };
  constexpr const char* kJson = "application/json";
  EXPECT_EQ(status("localhost:80", "http://localhost:80", kJson), 200);
  EXPECT_EQ(status("evil.example", "http://evil.example", kJson), 403);
  EXPECT_EQ(status("localhost:80", "http://evil.example", kJson), 403);
  EXPECT_EQ(status("localhost:80", "http://localhost:80", "text/plain"), 415);
  EXPECT_EQ(call("GET", "/v1/models", "", {{"Host", "evil.example"}})->response->status, 403);
  EXPECT_EQ(call("GET", "/", "", {{"Host", "evil.example"}})->response->status, 403);
  EXPECT_EQ(call("GET", "/", "", {{"Host", "localhost"}})->response->status, 200);
}

TEST_F(ServiceTest, AKeyHasItsLimits) {
  config_.api_keys = {"mine", "yours"};
  config_.key_limits.others = {.requests_per_minute = 1000, .concurrent_requests = 1};
  const http::Headers mine = {{"Authorization", "Bearer mine"}};
  const http::Headers yours = {{"Authorization", "Bearer yours"}};
  const std::string endless = R"({"prompt": [1])" + std::string(kEndless) + "}";
  const auto first = call("POST", "/v1/completions", endless, mine);
  const auto second = call("POST", "/v1/completions", endless, mine);
  ASSERT_TRUE(second->response);
  EXPECT_EQ(second->response->status, 429);
  const auto has = [](const std::string& name) { return testing::Contains(testing::Key(name)); };
  EXPECT_THAT(second->response->headers, has("Retry-After"));
  EXPECT_THAT(second->response->headers, has("x-ratelimit-remaining-requests"));
  const auto other = call("POST", "/v1/completions", endless, yours);
  ASSERT_TRUE(loop_.run_until([&] { return first->response && other->response; }));
  EXPECT_EQ(other->response->status, 200);
  EXPECT_THAT(first->response->headers,
              testing::Contains(testing::Pair("x-ratelimit-limit-requests", "1000")));
  first->disconnect();
  ASSERT_TRUE(loop_.run_until([&] { return service().num_generations() == 0; }));
  const auto third = call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 2})", mine);
  finish(*third);
  EXPECT_EQ(third->response->status, 200);
  const auto unknown = call("POST", "/v1/completions", endless);
  EXPECT_EQ(unknown->response->status, 401);
  EXPECT_THAT(unknown->response->headers, testing::Not(has("x-ratelimit-limit-requests")));
}

TEST_F(ServiceTest, NewKeysAndLimitsTouchNothingThatRuns) {
  config_.api_keys = {"old"};
  const std::string endless = R"({"prompt": [1])" + std::string(kEndless) + "}";
  const http::Headers old_key = {{"Authorization", "Bearer old"}};
  const http::Headers new_key = {{"Authorization", "Bearer new"}};
  const auto running = call("POST", "/v1/completions", endless, old_key);
  ASSERT_TRUE(loop_.run_until([&] { return running->response.has_value(); }));
  service().set_keys(ApiKeys({"new"}));
  service().set_key_limits({.others = {.tokens_per_minute = 100'000}});
  EXPECT_EQ(call("GET", "/v1/models", "", old_key)->response->status, 401);
  const auto answer =
      call("POST", "/v1/completions", R"({"prompt": [1], "max_tokens": 2})", new_key);
  finish(*answer);
  EXPECT_THAT(answer->response->headers,
              testing::Contains(testing::Pair("x-ratelimit-limit-tokens", "100000")));
  finish(*running);
  EXPECT_EQ(running->response->status, 200);
}

}  // namespace
}  // namespace quire::server
