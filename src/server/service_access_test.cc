// Who may call the service: keys and their limits, other origins, pages that are not trusted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/service.h"
#include "server/service_fixture.h"

namespace quire::server {
namespace {

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

// Calls back when a worker turns to it, which first asks whether its client is still there.
class AwaitedExchange : public FakeExchange {
 public:
  AwaitedExchange(http::Request request, std::function<void()> begins)
      : FakeExchange(std::move(request)), begins_(std::move(begins)) {}
  bool closed() const override {
    std::call_once(begun_, begins_);
    return FakeExchange::closed();
  }

 private:
  std::function<void()> begins_;
  mutable std::once_flag begun_;
};

TEST_F(ServiceTest, WorkersServeClientsInTurn) {
  config_.admission = {.max_num_queued_requests = 10, .max_num_seqs = 10};
  std::promise<void> first;
  std::promise<void> release;
  std::vector<std::string> turns;  // of the one worker
  const auto send = [&](
                        const std::string& client, const std::string& path,
                        std::function<void()> begins = [] {}) {
    http::Request request;
    request.method = "POST";
    request.path = path;
    request.body = R"({"prompt": [1, 2, 3]})";
    request.remote = client;
    auto exchange = std::make_shared<AwaitedExchange>(
        std::move(request), [&turns, name = client + path, begins = std::move(begins)] {
          turns.push_back(name);
          begins();
        });
    service().handle(exchange);
    return exchange;
  };
  std::vector<std::shared_ptr<AwaitedExchange>> sent;
  sent.push_back(send("a", "/v1/completions", [&] {
    first.set_value();
    release.get_future().wait();
  }));
  first.get_future().wait();
  for (const char* path : {"/v1/completions", "/tokenize"}) sent.push_back(send("a", path));
  for (const char* path : {"/tokenize", "/v1/completions"}) sent.push_back(send("b", path));
  release.set_value();
  for (const auto& exchange : sent) finish(*exchange);
  EXPECT_THAT(turns, testing::ElementsAre("a/v1/completions", "a/v1/completions", "b/tokenize",
                                          "a/tokenize", "b/v1/completions"));
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
