#pragma once
// Notices a rank that computes but does not get on.
//
// Thread safety: the functions given are called from a thread of its own.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

struct StallWatchOptions {
  size_t num_ranks = 0;
  double limit_s = 0;
  double last_limit_s = 0;  // how long after on_stall on_end comes
  // Whether a rank computes, and a number that changes while it gets on.
  std::function<bool(size_t rank)> computes;
  std::function<uint64_t(size_t rank)> progress;
  // Called once for each time that a rank has computed for limit_s and its number has not changed.
  // Time in which the whole process was stopped does not count.
  std::function<void(size_t rank)> on_stall;
  // Called once for each on_stall after which the rank has not got on for last_limit_s.
  std::function<void(size_t rank)> on_end;
};

class StallWatch {
 public:
  explicit StallWatch(StallWatchOptions options);
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

 private:
  struct Seen {
    uint64_t progress = 0;
    double unchanged_s = 0;
    bool has_stalled = false;
    bool has_ended = false;
  };
  void run();
  void look(size_t rank, double elapsed_s);

  const StallWatchOptions options_;
  std::vector<Seen> seen_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace quire
