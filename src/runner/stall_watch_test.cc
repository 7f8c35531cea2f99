#include "runner/stall_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "runner/rank_activity.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

TEST(StallWatch, NamesTheRankThatDoesNotGetOn) {
  std::atomic<uint64_t> num_looks = 0;
  std::promise<size_t> stalled;
  std::promise<size_t> ended;
  const StallWatch watch({.num_ranks = 4,
                          .limit_s = 0.4,
                          .last_limit_s = 0.2,
                          .computes = [](size_t rank) { return rank != 1; },
                          .progress = [&](size_t rank) { return rank == 2 ? 5 : ++num_looks; },
                          .on_stall = [&](size_t rank) { stalled.set_value(rank); },
                          .on_end = [&](size_t rank) { ended.set_value(rank); }});
  EXPECT_EQ(stalled.get_future().get(), 2u);
  EXPECT_EQ(ended.get_future().get(), 2u);
  // A second call would throw.
  const uint64_t before = num_looks;
  while (num_looks < before + 60) std::this_thread::sleep_for(milliseconds(5));
}

TEST(StallWatch, ForgetsARankThatComesBack) {
  std::atomic<bool> stalls = true;
  std::atomic<int> num_looks = 0;
  std::atomic<int> num_stalls = 0;
  std::atomic<int> num_ends = 0;
  const StallWatch watch({.num_ranks = 1,
                          .limit_s = 0.1,
                          .last_limit_s = 0.1,
                          .computes = [&](size_t) { return stalls.load(); },
                          .progress =
                              [&](size_t) {
                                ++num_looks;
                                return uint64_t{7};
                              },
                          .on_stall =
                              [&](size_t) {
                                ++num_stalls;
                                stalls = false;
                              },
                          .on_end = [&](size_t) { ++num_ends; }});
  for (int stall = 1; stall <= 2; ++stall) {
    while (num_stalls < stall) std::this_thread::sleep_for(milliseconds(5));
    // More looks than on_end would come after.
    const int before = num_looks;
    while (num_looks < before + 30) std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(num_stalls, stall);
    stalls = true;
  }
  EXPECT_EQ(num_ends, 0);
}

TEST(RankActivity, IsToComputeBetweenWaits) {
  RankActivity activity;
  EXPECT_FALSE(activity.computes());
  uint64_t changes = activity.num_changes();
  const auto expect_changed = [&] {
    EXPECT_GT(activity.num_changes(), std::exchange(changes, activity.num_changes()));
  };
  {
    const ActiveStep step(activity);
    expect_changed();
    EXPECT_TRUE(activity.computes());
    auto ranks = make_local_communicators(2);
    const auto communicator = watch_communicator(std::move(ranks[0]), activity);
    EXPECT_EQ(communicator->size(), 2);
    std::thread waiting([&] { communicator->barrier(); });
    while (activity.computes()) std::this_thread::sleep_for(milliseconds(1));
    expect_changed();
    ranks[1]->barrier();
    waiting.join();
    expect_changed();
    EXPECT_TRUE(activity.computes());
  }
  expect_changed();
  EXPECT_FALSE(activity.computes());
}

}  // namespace
}  // namespace quire
