// Constraints that take long to compile, and those who have nothing to do with them.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/service_fixture.h"

namespace quire::server {
namespace {

class ServiceCompilingTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    config_.admission = {.max_num_queued_requests = 16, .max_num_seqs = 16};
    config_.num_compilers = 2;
    engine_.hold_compiling(true);
  }
  std::shared_ptr<FakeExchange> constrained(const std::string& regex) {
    return complete(R"(, "max_tokens": 2, "structured_outputs": {"regex": ")" + regex + "\"}");
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

}  // namespace
}  // namespace quire::server
