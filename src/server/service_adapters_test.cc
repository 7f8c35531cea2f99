// Adapters that come and go, and those who have nothing to do with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "server/service_fixture.h"

namespace quire::server {
namespace {

using testing::HasSubstr;

class ServiceAdaptersTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    config_.admission = {.max_num_queued_requests = 64, .max_num_seqs = 64};
    model_.adapters = std::make_shared<AdapterList>();
    model_.loads_adapters = true;
    for (const char* name : {"slow", "known"}) {
      std::filesystem::create_directory(folder_.path() / name);
    }
  }
  std::string path_of(const std::string& name) const { return (folder_.path() / name).string(); }
  std::shared_ptr<FakeExchange> load(const std::string& name, const std::string& path,
                                     const std::string& more = "") {
    return call("POST", "/v1/load_lora_adapter",
                R"({"lora_name": ")" + name + R"(", "lora_path": ")" + path + "\"" + more + "}");
  }
  std::shared_ptr<FakeExchange> unload(const std::string& name) {
    return call("POST", "/v1/unload_lora_adapter", R"({"lora_name": ")" + name + "\"}");
  }
  std::shared_ptr<FakeExchange> ask(const std::string& model) {
    return complete(R"(, "max_tokens": 2, "model": ")" + model + "\"");
  }
  // The status of an answer.
  int status_of(const std::shared_ptr<FakeExchange>& exchange) {
    finish(*exchange);
    return exchange->response ? exchange->response->status : 0;
  }

  TemporaryFolder folder_;
};

TEST_F(ServiceAdaptersTest, ComeAndGo) {
  EXPECT_EQ(status_of(ask("caps")), 404);
  const auto loaded = load("caps", path_of("known"));
  ASSERT_EQ(status_of(loaded), 200);
  EXPECT_EQ(loaded->response->body, "Success: LoRA adapter 'caps' added successfully.");
  EXPECT_THAT(loaded->response->content_type, HasSubstr("text/plain"));
  const auto answer = ask("mock:caps");
  ASSERT_EQ(status_of(answer), 200);
  EXPECT_EQ(body_of(*answer)["model"], "caps");
  EXPECT_EQ(status_of(load("caps", path_of("slow"))), 400);
  EXPECT_EQ(status_of(load("caps", path_of("slow"), R"(, "load_inplace": true)")), 200);
  EXPECT_EQ(model_.adapters->find("caps")->root, path_of("slow"));
  EXPECT_EQ(status_of(unload("caps")), 200);
  EXPECT_EQ(status_of(unload("caps")), 404);
  EXPECT_EQ(status_of(ask("caps")), 404);
}

TEST_F(ServiceAdaptersTest, NamesOfTheModelAreTaken) {
  const auto exchange = load("mock", path_of("known"));
  ASSERT_EQ(status_of(exchange), 400);
  EXPECT_EQ(body_of(*exchange)["error"]["param"], "lora_name");
  const auto other = load("mock:caps", path_of("known"));  // which another one may be called
  ASSERT_EQ(status_of(other), 400);
  EXPECT_EQ(body_of(*other)["error"]["param"], "lora_name");
  EXPECT_EQ(status_of(load("caps:v2", path_of("known"))), 200);
  EXPECT_EQ(status_of(load("x", path_of("none"))), 404);
}

TEST_F(ServiceAdaptersTest, ReadingHoldsNobodyElseUp) {
  ASSERT_EQ(status_of(load("slow", path_of("slow"))), 200);
  ASSERT_EQ(status_of(load("known", path_of("known"))), 200);
  engine_.hold_adapters(true);
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  for (int i = 0; i < 8; ++i) waiting.push_back(ask("slow"));
  for (int i = 0; i < 40; ++i)
    waiting.push_back(load("more-" + std::to_string(i), path_of("slow")));
  EXPECT_EQ(status_of(ask("mock")), 200);
  EXPECT_EQ(status_of(ask("known")), 200);
  EXPECT_EQ(status_of(unload("known")), 200);
  for (const auto& exchange : waiting) EXPECT_FALSE(exchange->complete);
  engine_.hold_adapters(false);
  for (const auto& exchange : waiting) EXPECT_EQ(status_of(exchange), 200);
  EXPECT_EQ(model_.adapters->all().size(), 41u);
}

TEST_F(ServiceAdaptersTest, OneThatIsUnloadedWhileARequestWaitsForItIsNotFound) {
  ASSERT_EQ(status_of(load("slow", path_of("slow"))), 200);
  engine_.hold_adapters(true);
  const auto waiting = ask("slow");
  const auto other = ask("mock");
  finish(*other);  // the one worker has prepared both
  ASSERT_EQ(status_of(unload("slow")), 200);
  engine_.hold_adapters(false);
  EXPECT_EQ(status_of(waiting), 404);
}

// Else a long queue would fill the memory.
TEST_F(ServiceAdaptersTest, WhatWaitsForItsTurnHoldsNoWeights) {
  config_.admission = {.max_num_queued_requests = 64, .max_num_seqs = 64, .max_loras = 2};
  std::vector<std::shared_ptr<FakeExchange>> asked;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(status_of(load("a" + std::to_string(i), path_of("known"))), 200);
  }
  engine_.hold(true);
  for (int i = 0; i < 40; ++i) asked.push_back(ask("a" + std::to_string(i % 20)));
  const auto base = ask("mock");
  ASSERT_TRUE(loop_.run_until([&] { return engine_.stats().num_running == 5; }));
  EXPECT_EQ(engine_.num_held_loras(), 4);
  engine_.hold(false);
  for (const auto& exchange : asked) EXPECT_EQ(status_of(exchange), 200);
  EXPECT_EQ(status_of(base), 200);
}

TEST_F(ServiceAdaptersTest, ManyThatWaitForAnAdapterKeepNobodyWaiting) {
  config_.admission = {.max_num_queued_requests = 64, .max_num_seqs = 64, .max_loras = 1};
  ASSERT_EQ(status_of(load("slow", path_of("slow"))), 200);
  ASSERT_EQ(status_of(load("known", path_of("known"))), 200);
  engine_.hold_adapters(true);
  std::vector<std::shared_ptr<FakeExchange>> waiting;
  for (int i = 0; i < 40; ++i) waiting.push_back(ask("slow"));
  for (int i = 0; i < 10; ++i) waiting.push_back(ask("known"));
  EXPECT_EQ(status_of(ask("mock")), 200);
  for (const auto& exchange : waiting) EXPECT_FALSE(exchange->complete);
  engine_.hold_adapters(false);
  for (const auto& exchange : waiting) EXPECT_EQ(status_of(exchange), 200);
}

TEST_F(ServiceAdaptersTest, WhoGivesUpWhileItsAdapterIsReadMakesRoom) {
  config_.admission = {.max_num_queued_requests = 64, .max_num_seqs = 64, .max_loras = 1};
  ASSERT_EQ(status_of(load("slow", path_of("slow"))), 200);
  ASSERT_EQ(status_of(load("known", path_of("known"))), 200);
  engine_.hold_adapters(true);
  const auto gone = ask("slow");
  const auto late = complete(R"(, "max_tokens": 2, "model": "slow", "timeout": 0.01)");
  EXPECT_EQ(status_of(late), 429);
  gone->disconnect();
  EXPECT_EQ(status_of(ask("known")), 200);
}

TEST_F(ServiceAdaptersTest, WhereAnAdapterLiesIsCheckedEachTimeItIsRead) {
  config_.lora_dir = folder_.path().string();
  ASSERT_EQ(status_of(load("slow", "slow")), 200);
  std::filesystem::remove(path_of("slow"));
  std::filesystem::create_directory_symlink("/", path_of("slow"));
  engine_.hold_adapters(true);
  const auto exchange = ask("slow");
  EXPECT_EQ(status_of(ask("mock")), 200);  // the one worker has prepared both
  engine_.hold_adapters(false);
  ASSERT_EQ(status_of(exchange), 500);
  EXPECT_THAT(exchange->response->body, HasSubstr("--lora-dir"));
}

TEST_F(ServiceAdaptersTest, NamesHaveLimits) {
  config_.max_adapter_names = 2;
  EXPECT_EQ(status_of(load("a", path_of("known"))), 200);
  EXPECT_EQ(status_of(load("b", path_of("known"))), 200);
  const auto third = load("c", path_of("known"));
  ASSERT_EQ(status_of(third), 400);
  EXPECT_THAT(body_of(*third)["error"]["message"], HasSubstr("expected at most 2"));
  EXPECT_EQ(status_of(load("a", path_of("slow"), R"(, "load_inplace": true)")), 200);
  EXPECT_EQ(status_of(unload("b")), 200);
  std::string wide;
  for (int i = 0; i < 129; ++i) wide += "é";
  const auto refused = load(wide, path_of("known"));
  ASSERT_EQ(status_of(refused), 400);
  EXPECT_EQ(body_of(*refused)["error"]["param"], "lora_name");
  EXPECT_EQ(status_of(load(wide.substr(2), path_of("known"))), 200);
}

TEST_F(ServiceAdaptersTest, WhatTakesAPlaceKeepsItsParent) {
  model_.adapters->put({.name = "caps", .root = path_of("slow"), .parent = "org/first"});
  EXPECT_EQ(status_of(load("caps", path_of("known"), R"(, "load_inplace": true)")), 200);
  EXPECT_EQ(model_.adapters->find("caps")->parent, "org/first");
  EXPECT_EQ(model_.adapters->find("caps")->root, path_of("known"));
}

TEST_F(ServiceAdaptersTest, ClientsLoadNothingUnlessTheyMay) {
  model_.loads_adapters = false;
  EXPECT_EQ(status_of(load("caps", path_of("known"))), 404);
  EXPECT_EQ(status_of(unload("caps")), 404);
}

}  // namespace
}  // namespace quire::server
