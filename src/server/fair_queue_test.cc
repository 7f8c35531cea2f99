#include "server/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

namespace quire::server {
namespace {

using testing::ElementsAre;

TEST(FairQueue, OneClientIsServedInOrder) {
  FairQueue<int> queue;
  for (int i = 0; i < 4; ++i) queue.push("a", 0, i);
  queue.push("a", -1, 9);
  std::vector<int> order;
  while (!queue.empty()) {
    const int next = queue.at(*queue.next());
    order.push_back(queue.pop(*queue.next()));
    EXPECT_EQ(order.back(), next);
  }
  EXPECT_THAT(order, ElementsAre(9, 0, 1, 2, 3));
  EXPECT_EQ(queue.next(), std::nullopt);
}

TEST(FairQueue, AFloodDelaysOnlyItself) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 100; ++i) queue.push("flood", 0, "flood");
  const auto serve = [&queue] {
    std::string client = queue.pop(*queue.next());
    queue.charge(client, 10);
    return client;
  };
  for (int i = 0; i < 5; ++i) EXPECT_EQ(serve(), "flood");
  queue.push("quiet", 0, "quiet");
  queue.push("quiet", 0, "quiet");
  EXPECT_EQ(serve(), "flood");  // level, and it came first
  EXPECT_EQ(serve(), "quiet");
  EXPECT_EQ(serve(), "flood");
  EXPECT_EQ(serve(), "quiet");
}

TEST(FairQueue, WeightsDivideWhatAClientGot) {
  FairQueue<std::string> queue;
  for (int i = 0; i < 40; ++i) {
    queue.push("light", 0, "light", 100);
    queue.push("heavy", 0, "heavy", 300);
  }
  std::map<std::string, int> served;
  for (int i = 0; i < 40; ++i) {
    const std::string client = queue.pop(*queue.next());
    ++served[client];
    queue.charge(client, 7);
  }
  EXPECT_EQ(served["heavy"], 30);
}

TEST(FairQueue, OneThatDoesNotFitLetsOthersPass) {
  FairQueue<int> queue;
  queue.push("a", 0, 100);
  queue.push("a", 0, 1);
  queue.push("b", 0, 2);
  const auto small = [](int item) { return item < 10; };
  const auto large = [](int item) { return item >= 10; };
  const auto none = [](int) { return false; };
  EXPECT_EQ(queue.pop(queue.next(none, small).value()), 2);
  EXPECT_EQ(queue.next(none, small), std::nullopt) << "within a client nothing passes";
  EXPECT_EQ(queue.at(queue.next(large, small).value()), 1) << "but what is passed over";
  EXPECT_EQ(queue.pop(*queue.next()), 100);
  EXPECT_EQ(queue.pop(queue.next(none, small).value()), 1);
}

TEST(FairQueue, AClientThatComesBackHasNothingSavedUp) {
  FairQueue<std::string> queue;
  queue.push("old", 0, "old");
  queue.pop(*queue.next());
  for (int i = 0; i < 50; ++i) {
    queue.push("busy", 0, "busy");
    queue.pop(*queue.next());
    queue.charge("busy", 100);
  }
  queue.push("busy", 0, "busy");
  for (int i = 0; i < 5; ++i) queue.push("old", 0, "old");
  std::vector<std::string> order;
  while (!queue.empty()) {
    order.push_back(queue.pop(*queue.next()));
    queue.charge(order.back(), 100);
  }
  EXPECT_THAT(order, ElementsAre("busy", "old", "old", "old", "old", "old"));
}

TEST(FairQueue, RemovesFromTheMiddle) {
  FairQueue<int> queue;
  queue.push("a", 0, 1);
  const auto ticket = queue.push("b", 3, 2);
  queue.push("b", 3, 3);
  EXPECT_EQ(queue.remove(ticket), 2);
  EXPECT_EQ(queue.remove(ticket), std::nullopt);
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.pop(*queue.next()), 1);
  EXPECT_EQ(queue.pop(*queue.next()), 3);
  queue.forget("a");
  queue.forget("b");
  EXPECT_EQ(queue.num_clients(), 0u);
}

// While two clients always wait, what they got differs by no more than one request's worth.
TEST(FairQueue, ServiceOfWaitingClientsStaysLevel) {
  constexpr int64_t kLargest = 1000;
  for (unsigned seed = 1; seed <= 50; ++seed) {
    std::mt19937 random(seed);
    FairQueue<std::string> queue;
    const int num_clients = 2 + static_cast<int>(random() % 6);
    std::map<std::string, int64_t> got;
    for (int i = 0; i < num_clients; ++i) {
      const std::string name = "client " + std::to_string(i);
      got[name] = 0;
      queue.push(name, 0, name);
      queue.push(name, 0, name);
    }
    for (int i = 0; i < 500; ++i) {
      const std::string name = queue.pop(*queue.next());
      const auto cost = static_cast<int64_t>(1 + random() % kLargest);
      got[name] += cost;
      queue.charge(name, cost);
      queue.push(name, static_cast<int64_t>(random() % 3), name);
      const auto [least, most] = std::minmax_element(
          got.begin(), got.end(), [](auto& a, auto& b) { return a.second < b.second; });
      ASSERT_LE(most->second - least->second, kLargest) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace quire::server
