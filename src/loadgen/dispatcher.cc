#include "loadgen/dispatcher.h"

#include <algorithm>

#include "base/check.h"

namespace quire::loadgen {

Dispatcher::Dispatcher(const Schedule& schedule)
    : schedule_(schedule),
      arrivals_(schedule.request_rate, schedule.burstiness, schedule.seed),
      next_arrival_s_(arrivals_.next()) {}

bool Dispatcher::all_sent(double now_s) const {
  const double last_s = std::max(now_s, next_arrival_s_);
  return num_sent_ == schedule_.num_requests || last_s >= schedule_.duration_s;
}

bool Dispatcher::has_place() const {
  const auto num_taken = num_running_ + static_cast<int64_t>(pauses_.size());
  return !schedule_.max_concurrency || num_taken < *schedule_.max_concurrency;
}

std::optional<int64_t> Dispatcher::next(double now_s) {
  if (!retries_.empty() && retries_.top().first <= now_s) {
    const int64_t request = retries_.top().second;
    retries_.pop();
    return request;
  }
  while (!pauses_.empty() && pauses_.top() <= now_s) pauses_.pop();
  if (all_sent(now_s) || next_arrival_s_ > now_s || !has_place()) return std::nullopt;
  next_arrival_s_ = arrivals_.next();
  ++num_running_;
  return num_sent_++;
}

std::optional<double> Dispatcher::next_time(double now_s) const {
  std::optional<double> time;
  if (!retries_.empty()) time = retries_.top().first;
  if (!all_sent(now_s) && (has_place() || !pauses_.empty())) {
    const double place_s = has_place() ? next_arrival_s_ : pauses_.top();
    time = std::min(time.value_or(place_s), place_s);
  }
  return time;
}

void Dispatcher::finished(double free_at_s) {
  check(num_running_ > 0, "a request that finishes was running");
  --num_running_;
  if (free_at_s > 0) pauses_.push(free_at_s);
}

bool Dispatcher::retry(int64_t request, double at_s) {
  if (at_s >= schedule_.duration_s) return false;
  retries_.emplace(at_s, request);
  return true;
}

bool Dispatcher::done(double now_s) const {
  return num_running_ == 0 && all_sent(now_s);
}

}  // namespace quire::loadgen
