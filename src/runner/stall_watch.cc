#include "runner/stall_watch.h"

#include <algorithm>
#include <utility>

namespace quire {

StallWatch::StallWatch(StallWatchOptions options)
    : options_(std::move(options)), seen_(options_.num_ranks), thread_([this] { run(); }) {}

StallWatch::~StallWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StallWatch::run() {
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const Seconds interval(std::min(1.0, options_.limit_s / 8));
  Clock::time_point last = Clock::now();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return over_; })) {
    lock.unlock();
    const Clock::time_point now = Clock::now();
    const Seconds elapsed = std::min<Seconds>(now - std::exchange(last, now), 2 * interval);
    for (size_t rank = 0; rank < seen_.size(); ++rank) look(rank, elapsed.count());
    lock.lock();
  }
}

void StallWatch::look(size_t rank, double elapsed_s) {
  Seen& seen = seen_[rank];
  const uint64_t progress = options_.progress(rank);
  if (!options_.computes(rank) || progress != seen.progress) {
    seen = {.progress = progress};
    return;
  }
  seen.unchanged_s += elapsed_s;
  if (seen.unchanged_s >= options_.limit_s && !std::exchange(seen.has_stalled, true)) {
    options_.on_stall(rank);
  }
  if (seen.unchanged_s >= options_.limit_s + options_.last_limit_s &&
      !std::exchange(seen.has_ended, true)) {
    options_.on_end(rank);
  }
}

}  // namespace quire
