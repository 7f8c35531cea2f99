#pragma once
// Progress of a work of many bytes: calls the caller's on_progress, which may end the work.
//
// Thread safety: one thread at a time.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace quire {

class ByteProgress {
 public:
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;

  // `on_progress` may be empty: the work is then never ended.
  ByteProgress(OnProgress on_progress, size_t total)
      : on_progress_(std::move(on_progress)), total_(total) {}

  void add(size_t bytes) { done_ = std::min(total_, done_ + bytes); }
  // Whether the work goes on. Asks rarely enough to be called in an inner loop.
  bool goes_on() {
    const auto now = std::chrono::steady_clock::now();
    if (!on_progress_ || now - asked_ < kInterval) return goes_on_;
    asked_ = now;
    goes_on_ = goes_on_ && on_progress_(static_cast<int64_t>(done_), static_cast<int64_t>(total_));
    return goes_on_;
  }

 private:
  static constexpr std::chrono::milliseconds kInterval{20};

  OnProgress on_progress_;
  size_t total_;
  size_t done_ = 0;
  bool goes_on_ = true;
  std::chrono::steady_clock::time_point asked_{};
};

}  // namespace quire
