#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "quire/error.h"

namespace quire {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEachTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
    pool.parallel_for(tasks, [&](int64_t task, int thread) {
      EXPECT_TRUE(thread >= 0 && thread < pool.size());
      runs[static_cast<size_t>(task)].fetch_add(1);
    });
    for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
  }
}

TEST_P(ThreadPoolTest, ProgressGrowsWithEachTask) {
  ThreadPool pool(GetParam());
  for (const int64_t tasks : {1, 2, 50}) {
    uint64_t before = pool.progress();
    pool.parallel_for(tasks, [&](int64_t, int thread) {
      if (thread != 0) return;
      const uint64_t now = pool.progress();
      EXPECT_GT(now, before);
      before = now;
    });
    EXPECT_GE(pool.progress(), before);
  }
}

// What one loop writes, without atomics, the next reads, on whatever thread.
TEST_P(ThreadPoolTest, LoopsFollowEachOther) {
  ThreadPool pool(GetParam());
  constexpr int64_t kTasks = 16;
  std::vector<int64_t> even(kTasks, 0), odd(kTasks, 0);
  constexpr int kLoops = 2000;
  for (int loop = 0; loop < kLoops; ++loop) {
    const auto& from = loop % 2 == 0 ? even : odd;
    auto& to = loop % 2 == 0 ? odd : even;
    pool.parallel_for(kTasks, [&](int64_t task, int) {
      to[static_cast<size_t>(task)] = from[static_cast<size_t>((task + 1) % kTasks)] + 1;
    });
  }
  for (int64_t value : even) EXPECT_EQ(value, kLoops);
}

TEST_P(ThreadPoolTest, WakesAfterSleeping) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 5; ++loop) {
    std::atomic<int> sum = 0;
    pool.parallel_for(100, [&](int64_t task, int) { sum += static_cast<int>(task); });
    EXPECT_EQ(sum.load(), 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST_P(ThreadPoolTest, ThrowsWhatATaskThrew) {
  ThreadPool pool(GetParam());
  const auto odd_tasks_fail = [](int64_t task, int) {
    if (task % 2 == 1) throw Error("an odd task");
  };
  for (int loop = 0; loop < 3; ++loop) {
    EXPECT_THROW(pool.parallel_for(100, odd_tasks_fail), Error);
    EXPECT_NO_THROW(pool.parallel_for(1, odd_tasks_fail));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 8, 33));

TEST(ThreadPool, ManyShortLoopsOfDifferentLengths) {
  ThreadPool pool(4);
  int64_t expected = 0;
  std::atomic<int64_t> sum = 0;
  for (int64_t loop = 0; loop < 5000; ++loop) {
    const int64_t tasks = loop % 9;
    expected += tasks;
    pool.parallel_for(tasks, [&](int64_t, int) { sum.fetch_add(1, std::memory_order_relaxed); });
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST(ThreadPool, PinsToTheCpusGiven) {
  const CpuTopology topology = cpu_topology();
  ThreadPool pool(1, topology.cpus);
  ThreadPool all(static_cast<int>(topology.cpus.size()), topology.cpus);
  std::atomic<int> runs = 0;
  all.parallel_for(64, [&](int64_t, int) { ++runs; });
  EXPECT_EQ(runs.load(), 64);
}

TEST(ThreadPool, RefusesACpuThatIsNotThere) {
  EXPECT_THROW(ThreadPool(2, {0, 1 << 20}), Error);
  EXPECT_THROW(ThreadPool(2, {0, -1}), Error);
}

TEST(ThreadPool, SaysWhenThreadsCannotBeStarted) {
  // No thread gets a stack of more than the address space.
  pthread_attr_t usual;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_t huge = usual;
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  std::string message;
  try {
    ThreadPool pool(3);
  } catch (const Error& error) {
    message = error.what();
  }
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  pthread_attr_destroy(&usual);
  EXPECT_TRUE(message.starts_with("A pool of 3 threads cannot be started")) << message;
}

TEST(CpuTopology, NamesEachCpuOnce) {
  const CpuTopology topology = cpu_topology();
  ASSERT_FALSE(topology.cpus.empty());
  EXPECT_GE(topology.num_physical_cores, 1);
  EXPECT_LE(topology.num_physical_cores, static_cast<int>(topology.cpus.size()));
  EXPECT_EQ(std::set<int>(topology.cpus.begin(), topology.cpus.end()).size(), topology.cpus.size());
}

}  // namespace
}  // namespace quire
