#pragma once
// Calls to be made later, on a thread of its own that sleeps until the next one is due.
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

  // `call` must be short, because it delays the others. It may throw only std::bad_alloc; then it
  // is made again a little later.
  Id at(Clock::time_point due, std::function<void()> call);
  Id after(std::chrono::duration<double> delay, std::function<void()> call);
  // Drops a call that has not begun; no effect on others.
  void cancel(Id id);

 private:
  using Calls = std::map<std::pair<Clock::time_point, Id>, std::function<void()>>;

  void run();
  // Makes the call; puts it back if there was no memory for it.
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
