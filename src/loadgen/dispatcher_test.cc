#include "loadgen/dispatcher.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace quire::loadgen {
namespace {

std::vector<int64_t> all_due(Dispatcher& dispatcher, double now_s) {
  std::vector<int64_t> due;
  while (const auto request = dispatcher.next(now_s)) due.push_back(*request);
  return due;
}

using Numbers = std::vector<int64_t>;

TEST(Dispatcher, SendsAllAtOnce) {
  Schedule schedule;
  schedule.num_requests = 3;
  Dispatcher dispatcher(schedule);
  EXPECT_EQ(all_due(dispatcher, 0), (Numbers{0, 1, 2}));
  EXPECT_EQ(dispatcher.num_running(), 3);
  EXPECT_FALSE(dispatcher.next_time(0));
  EXPECT_FALSE(dispatcher.done(0));
  for (int i = 0; i < 3; ++i) dispatcher.finished();
  EXPECT_TRUE(dispatcher.done(0));
}

TEST(Dispatcher, KeepsTheLimit) {
  Schedule schedule;
  schedule.num_requests = 5;
  schedule.max_concurrency = 2;
  Dispatcher dispatcher(schedule);
  EXPECT_EQ(all_due(dispatcher, 0), (Numbers{0, 1}));
  EXPECT_FALSE(dispatcher.next_time(0)) << "only a request that finishes makes a place";
  dispatcher.finished();
  EXPECT_EQ(all_due(dispatcher, 1), (Numbers{2}));
  dispatcher.finished();
  dispatcher.finished();
  EXPECT_EQ(all_due(dispatcher, 2), (Numbers{3, 4}));
  EXPECT_EQ(dispatcher.num_sent(), 5);
}

TEST(Dispatcher, WaitsForArrivals) {
  Schedule schedule;
  schedule.num_requests = 100;
  schedule.request_rate = 10;
  schedule.seed = 4;
  Arrivals arrivals(10, 1, 4);
  Dispatcher dispatcher(schedule);
  for (int64_t i = 0; i < 100; ++i) {
    const double time_s = arrivals.next();
    ASSERT_EQ(dispatcher.next_time(0), time_s);
    EXPECT_FALSE(i > 0 && dispatcher.next(std::nextafter(time_s, 0)));
    EXPECT_EQ(dispatcher.next(time_s), i);
  }
  EXPECT_FALSE(dispatcher.next(1e9));
}

TEST(Dispatcher, ArrivalsWaitForAPlace) {
  Schedule schedule;
  schedule.num_requests = 100;
  schedule.request_rate = 10;
  schedule.max_concurrency = 3;
  Dispatcher dispatcher(schedule);
  EXPECT_EQ(all_due(dispatcher, 1e6).size(), 3);
  EXPECT_FALSE(dispatcher.next_time(1e6));
  dispatcher.finished();
  EXPECT_EQ(all_due(dispatcher, 1e6), (Numbers{3}));
}

TEST(Dispatcher, EndsAfterItsDuration) {
  Schedule schedule;
  schedule.duration_s = 10;
  schedule.max_concurrency = 2;
  Dispatcher dispatcher(schedule);
  for (int64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(dispatcher.next(9.9));
    if (i > 0) dispatcher.finished();
  }
  EXPECT_EQ(dispatcher.num_running(), 1);
  EXPECT_FALSE(dispatcher.next(10));
  EXPECT_FALSE(dispatcher.next_time(10)) << "nothing to wake up for";
  EXPECT_FALSE(dispatcher.done(10));
  dispatcher.finished();
  EXPECT_TRUE(dispatcher.done(10));
}

TEST(Dispatcher, APauseKeepsThePlace) {
  Schedule schedule;
  schedule.duration_s = 10;
  schedule.max_concurrency = 1;
  Dispatcher dispatcher(schedule);
  EXPECT_EQ(all_due(dispatcher, 0), (Numbers{0}));
  dispatcher.finished(2);
  EXPECT_EQ(dispatcher.num_running(), 0);
  EXPECT_FALSE(dispatcher.next(1));
  EXPECT_EQ(dispatcher.next_time(1), 2);
  EXPECT_EQ(all_due(dispatcher, 2), (Numbers{1}));
  dispatcher.finished(20);
  EXPECT_FALSE(dispatcher.next(10));
  EXPECT_TRUE(dispatcher.done(10));
}

TEST(Dispatcher, RetriesAtTheirTime) {
  Schedule schedule;
  schedule.num_requests = 2;
  schedule.max_concurrency = 1;
  Dispatcher dispatcher(schedule);
  EXPECT_EQ(all_due(dispatcher, 0), (Numbers{0}));
  EXPECT_TRUE(dispatcher.retry(0, 3));
  EXPECT_EQ(dispatcher.num_running(), 1) << "it keeps its place";
  EXPECT_EQ(dispatcher.next_time(0), 3);
  EXPECT_EQ(all_due(dispatcher, 2.9), Numbers{});
  EXPECT_EQ(all_due(dispatcher, 3), (Numbers{0}));
  dispatcher.finished();
  EXPECT_EQ(all_due(dispatcher, 3), (Numbers{1}));
  EXPECT_EQ(dispatcher.num_sent(), 2);
}

TEST(Dispatcher, RetriesInOrderOfTime) {
  Schedule schedule;
  schedule.num_requests = 3;
  Dispatcher dispatcher(schedule);
  all_due(dispatcher, 0);
  dispatcher.retry(0, 5);
  dispatcher.retry(1, 4);
  dispatcher.retry(2, 6);
  EXPECT_EQ(all_due(dispatcher, 10), (Numbers{1, 0, 2}));
}

TEST(Dispatcher, NoRetryAfterTheEnd) {
  Schedule schedule;
  schedule.duration_s = 10;
  schedule.max_concurrency = 1;
  Dispatcher dispatcher(schedule);
  ASSERT_TRUE(dispatcher.next(0));
  EXPECT_FALSE(dispatcher.retry(0, 10));
  dispatcher.finished();
  EXPECT_TRUE(dispatcher.done(11));
}

}  // namespace
}  // namespace quire::loadgen
