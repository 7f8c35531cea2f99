#pragma once
// Calls that are to be made later, from one thread of its own that sleeps until the next is due.
//
// Thread safety: every method from any thread, also from within a call.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace quire {

class TimerQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Id = uint64_t;

  // Throws Error if no thread can be started.
  TimerQueue();
  // Drops what is not due yet and waits for a call that is under way.
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // `call` must be short, for it holds up the others, and must throw nothing but std::bad_alloc:
  // then it is made again a little later.
  Id at(Clock::time_point due, std::function<void()> call);
  Id after(std::chrono::duration<double> delay, std::function<void()> call);
  // Drops a call that has not begun; no effect on others.
  void cancel(Id id);

 private:
  using Calls = std::map<std::pair<Clock::time_point, Id>, std::function<void()>>;

  void run();
  // Makes the call, and puts it back where there was no memory for it.
  void make(Calls::node_type call, std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  Calls calls_;
  std::map<Id, Clock::time_point> due_;
  Id next_id_ = 1;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace quire
