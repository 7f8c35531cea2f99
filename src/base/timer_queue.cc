#include "base/timer_queue.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>

#include "quire/error.h"

namespace quire {
namespace {

// Later than this is as good as never, and fits every clock.
constexpr std::chrono::duration<double> kLongest = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds kRetryAfter(100);

}  // namespace

TimerQueue::TimerQueue() {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("The timers' thread cannot be started: ") + error.what() + ".");
  }
}

TimerQueue::~TimerQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

TimerQueue::Id TimerQueue::at(Clock::time_point due, std::function<void()> call) {
  Id id = 0;
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    id = next_id_++;
    const auto place = due_.emplace(id, due).first;
    try {
      const auto call_place = calls_.emplace(std::pair(due, id), std::move(call)).first;
      first = call_place == calls_.begin();
    } catch (...) {
      due_.erase(place);
      throw;
    }
  }
  if (first) changed_.notify_all();
  return id;
}

TimerQueue::Id TimerQueue::after(std::chrono::duration<double> delay, std::function<void()> call) {
  const auto bounded = std::clamp(delay, std::chrono::duration<double>::zero(), kLongest);
  return at(Clock::now() + std::chrono::duration_cast<Clock::duration>(bounded), std::move(call));
}

void TimerQueue::cancel(Id id) {
  const std::lock_guard lock(mutex_);
  const auto it = due_.find(id);
  if (it == due_.end()) return;
  calls_.erase({it->second, id});
  due_.erase(it);
}

void TimerQueue::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (calls_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto next = calls_.begin();
    const Clock::time_point due = next->first.first;
    if (Clock::now() < due) {
      changed_.wait_until(lock, due);
      continue;
    }
    make(calls_.extract(next), lock);
  }
}

// Nodes of the maps are moved: that takes no memory.
void TimerQueue::make(Calls::node_type call, std::unique_lock<std::mutex>& lock) {
  auto due = due_.extract(call.key().second);
  lock.unlock();
  bool made = true;
  try {
    call.mapped()();
    call = {};
  } catch (const std::bad_alloc&) {
    made = false;
  }
  lock.lock();
  if (made) return;
  due.mapped() = call.key().first = Clock::now() + kRetryAfter;
  due_.insert(std::move(due));
  calls_.insert(std::move(call));
}

}  // namespace quire
