#include "base/timer_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <new>
#include <vector>

namespace quire {
namespace {

using namespace std::chrono_literals;

TEST(TimerQueue, CallsInOrderOfWhatIsDue) {
  TimerQueue timers;
  std::vector<int> order;  // written by the timers' thread alone, read after the last call
  std::promise<void> done;
  const auto start = TimerQueue::Clock::now();
  timers.at(start + 30ms, [&] { order.push_back(3); });
  timers.at(start + 10ms, [&] { order.push_back(1); });
  timers.at(start + 20ms, [&] { order.push_back(2); });
  timers.at(start + 40ms, [&] { done.set_value(); });
  done.get_future().wait();
  EXPECT_GE(TimerQueue::Clock::now(), start + 40ms);
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3));
}

TEST(TimerQueue, MakesACallAgainThatFoundNoMemory) {
  TimerQueue timers;
  int tries = 0;
  std::promise<void> done;
  timers.after(0s, [&] {
    if (++tries < 3) throw std::bad_alloc();
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_EQ(tries, 3);
}

TEST(TimerQueue, DropsWhatIsCancelled) {
  TimerQueue timers;
  bool called = false;
  std::promise<void> done;
  const auto id = timers.after(1h, [&] { called = true; });
  timers.cancel(id);
  timers.cancel(id);
  timers.after(-5s, [&] { timers.after(0s, [&] { done.set_value(); }); });
  done.get_future().wait();
  timers.after(std::chrono::duration<double>(1e300), [&] { called = true; });
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace quire
