// Constraints that take long to compile, and those who have nothing to do with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/service_fixture.h"

namespace quire::server {
namespace {

using testing::HasSubstr;

class ServiceCompilingTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    config_.admission = {.max_num_queued_requests = 16, .max_num_seqs = 16};
    config_.num_compilers = 2;
    engine_.hold_compiling(true);
  }
  std::shared_ptr<FakeExchange> constrained(const std::string& regex,
                                            const std::string& client = "127.0.0.1",
                                            const std::string& fields = "") {
    http::Request request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"prompt": [1], "max_tokens": 2, "structured_outputs": {"regex": ")" + regex +
                   "\"}" + fields + "}";
    request.remote = client;
    auto exchange = std::make_shared<FakeExchange>(std::move(request));
    service().handle(exchange);
    return exchange;
  }
};

TEST_F(ServiceCompilingTest, HoldsNobodyElseUp) {
  std::vector<std::shared_ptr<FakeExchange>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(constrained("slow" + std::to_string(i)));
  const auto free = complete(R"(, "max_tokens": 2)");
  finish(*free);
  EXPECT_EQ(free->response->status, 200);
  const auto known = constrained("known");
  finish(*known);
  EXPECT_EQ(known->response->status, 200);
  for (const auto& exchange : slow) EXPECT_FALSE(exchange->complete);
  engine_.hold_compiling(false);
  for (const auto& exchange : slow) {
    finish(*exchange);
    EXPECT_EQ(exchange->response->status, 200);
  }
}

TEST_F(ServiceCompilingTest, ShortOnesWaitForNoLongOnes) {
  std::vector<std::shared_ptr<FakeExchange>> slow;
  for (int i = 0; i < 6; ++i) {
    slow.push_back(constrained("slow" + std::to_string(i), "127.0.0." + std::to_string(i)));
  }
  const auto quick = constrained("short");
  finish(*quick);
  EXPECT_EQ(quick->response->status, 200);
  for (const auto& exchange : slow) EXPECT_FALSE(exchange->complete);
  engine_.hold_compiling(false);
  for (const auto& exchange : slow) {
    finish(*exchange);
    EXPECT_EQ(exchange->response->status, 200);
  }
  EXPECT_EQ(engine_.compiled().size(), 7u);
}

TEST_F(ServiceCompilingTest, ClientsMayGoMeanwhile) {
  const auto gone = constrained("slow");
  const auto stays = constrained("slow too");
  const auto free = complete(R"(, "max_tokens": 2)");
  finish(*free);  // the one worker has prepared all three
  gone->disconnect();
  EXPECT_EQ(service().num_generations(), 1u);
  engine_.hold_compiling(false);
  finish(*stays);
  EXPECT_EQ(stays->response->status, 200);
  EXPECT_FALSE(gone->response);
}

TEST_F(ServiceCompilingTest, ServesClientsInTurn) {
  config_.num_compilers = 1;
  for (const char* regex : {"first", "second", "third", "fourth"}) constrained(regex);
  const auto other = constrained("another client's", "127.0.0.2");
  const auto free = complete(R"(, "max_tokens": 2)");
  finish(*free);  // the one worker has prepared them all
  engine_.hold_compiling(false);
  finish(*other);
  const std::vector<std::string> compiled = engine_.compiled();
  const auto place = std::ranges::find(compiled, "another client's") - compiled.begin();
  EXPECT_LE(place, 2);
}

TEST_F(ServiceCompilingTest, EndsAWaitWithTheRequestsTimeout) {
  const auto slow = constrained("slow");
  const auto slow_too = constrained("slow too");
  const auto hasty = constrained("hasty", "127.0.0.2", R"(, "timeout": 0.05)");
  finish(*hasty);
  EXPECT_EQ(hasty->response->status, 429);
  EXPECT_THAT(hasty->response->body, HasSubstr("timeout"));
  engine_.hold_compiling(false);
  finish(*slow);
  finish(*slow_too);
  EXPECT_EQ(slow->response->status, 200);
}

TEST_F(ServiceCompilingTest, EndsAWaitThatIsTooLongForTheServer) {
  config_.max_queue_time_s = 0.05;
  const auto slow = constrained("slow");
  finish(*slow);
  EXPECT_EQ(slow->response->status, 429);
  EXPECT_THAT(slow->response->body, HasSubstr("--max-queue-time"));
}

}  // namespace
}  // namespace quire::server
