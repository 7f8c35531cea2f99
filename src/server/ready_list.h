#pragma once
// Which generations have outputs to fetch: filled by the engine's thread, emptied by the I/O
// thread. A whole engine step wakes the I/O thread once.
//
// Thread safety: add() from any thread, take() from one.
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace quire::server {

class Generation;

class ReadyList {
 public:
  struct Entry {
    std::weak_ptr<Generation> generation;
    size_t prompt_index = 0;
  };

  // `wake` is called, from the thread of add(), when the list is no longer empty; must not throw.
  explicit ReadyList(std::function<void()> wake) : wake_(std::move(wake)) {}

  // If there is no memory for the entry, take() reports that entries were lost.
  void add(const std::weak_ptr<Generation>& generation, size_t prompt_index) noexcept {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = entries_.empty() && !all_;
      try {
        entries_.push_back({generation, prompt_index});
      } catch (const std::bad_alloc&) {
        all_ = true;
      }
    }
    if (first) wake_();
  }

  // Swaps the entries into `entries`, and reuses the memory of that. False: entries were lost, so
  // any generation may have outputs.
  [[nodiscard]] bool take(std::vector<Entry>& entries) {
    entries.clear();
    const std::lock_guard lock(mutex_);
    entries.swap(entries_);
    return !std::exchange(all_, false);
  }

 private:
  std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  bool all_ = false;  // more are ready than entries_ names
};

}  // namespace quire::server
