#include "server/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::server {
namespace {

// Sequences that may wait inside the engine, so that it never idles between a step and the next
// turn given.
constexpr int64_t kFeedAhead = 32;
// An output token costs about as much as two of a prompt (the weights of the paper that
// fair_queue.h names).
constexpr int64_t kOutputWeight = 2;
constexpr double kSmoothing = 0.1;
constexpr double kLongestRetry = 600;

}  // namespace

bool Admission::has_room(int64_t num_sequences) const {
  if (num_in_engine_ == 0) return true;
  return num_in_engine_ + num_sequences <= config_.max_num_seqs &&
         engine_.stats().num_waiting < kFeedAhead;
}

void Admission::arrive(std::string& reason) {
  if (shutting_down_) {
    reason = "shutting_down";
    throw service_unavailable("The server is shutting down and takes no new requests.", 1);
  }
  const int64_t free = std::max<int64_t>(0, config_.max_num_seqs - num_in_engine_);
  if (num_queued() >= config_.max_num_queued_requests + free) {
    reason = "queue_full";
    throw rate_limited(
        fmt::format("The server is full: {} requests wait (--max-num-queued-requests is {}). "
                    "Try again later.",
                    num_queued(), config_.max_num_queued_requests),
        retry_after_s());
  }
  ++num_preparing_;
}

Admission::Ticket Admission::enqueue(Waiting waiting, int64_t priority) {
  --num_preparing_;
  const std::string client = waiting.client;
  return queue_.push(client, priority, std::move(waiting));
}

bool Admission::leave(Ticket ticket) {
  const auto waiting = queue_.remove(ticket);
  if (!waiting) return false;
  if (!num_running_.contains(waiting->client)) queue_.forget(waiting->client);
  return true;
}

void Admission::finished(const std::string& client, int64_t num_sequences, Clock::time_point now) {
  num_in_engine_ -= num_sequences;
  const auto running = num_running_.find(client);
  if (--running->second == 0) {
    num_running_.erase(running);
    queue_.forget(client);
  }
  if (last_end_ != Clock::time_point{}) {
    const double gap = std::chrono::duration<double>(now - last_end_).count();
    gap_s_ = gap_s_ > 0 ? gap_s_ + kSmoothing * (gap - gap_s_) : gap;
  }
  last_end_ = now;
  // The time until the next request comes says nothing about the rate.
  if (num_in_engine_ == 0 && queue_.empty()) last_end_ = {};
}

void Admission::charge_output(const std::string& client, int64_t num_tokens) {
  queue_.charge(client, kOutputWeight * num_tokens);
}

void Admission::pump() {
  if (std::exchange(pumping_, true)) return;  // a turn that ends at once calls it again
  struct Guard {
    bool& flag;
    ~Guard() { flag = false; }
  } const guard{pumping_};
  while (const Waiting* next = queue_.front()) {
    if (!has_room(next->num_sequences)) break;
    const Waiting waiting = queue_.pop();
    num_in_engine_ += waiting.num_sequences;
    ++num_running_[waiting.client];
    queue_.charge(waiting.client, waiting.num_prompt_tokens);
    waiting.start();
  }
}

int64_t Admission::retry_after_s() const {
  const double wait_s = static_cast<double>(num_queued() + 1) * gap_s_;
  return static_cast<int64_t>(std::ceil(std::clamp(wait_s, 1.0, kLongestRetry)));
}

}  // namespace quire::server
