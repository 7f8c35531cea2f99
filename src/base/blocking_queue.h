#pragma once
// A queue between threads that can be closed.
//
// Thread safety: every method from any thread.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace quire {

template <typename T>
class BlockingQueue {
 public:
  // Ignored once the queue is closed.
  void push(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
  }

  // Waits for an item; nothing once the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (items_.empty()) return std::nullopt;
    T value = std::move(items_.front());
    items_.pop_front();
    return value;
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace quire
