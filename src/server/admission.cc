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

bool Admission::has_less_than_its_part(const Waiting& waiting) const {
  // As many again as there are places, so that the engine does not hold requests without end.
  if (num_in_engine_ >= 2 * config_.max_num_seqs) return false;
  const auto own = in_engine_.find(waiting.client);
  if (own == in_engine_.end()) return true;
  if (in_engine_.size() == 1) return false;  // it would wait for its own only
  int64_t weight = 0;
  for (const auto& [client, in_engine] : in_engine_) weight += in_engine.weight;
  return (own->second.num_sequences + waiting.num_sequences) * weight <=
         config_.max_num_seqs * own->second.weight;
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
  Turn turn{.waiting = std::move(waiting), .seat = {}};
  std::map<std::string, InEngine> seats;
  seats.try_emplace(turn.waiting.client);
  turn.seat = seats.extract(seats.begin());
  const std::string client = turn.waiting.client;
  const int32_t weight = turn.waiting.weight;
  const Ticket ticket = queue_.push(client, priority, std::move(turn), weight);
  --num_preparing_;
  return ticket;
}

bool Admission::leave(Ticket ticket) {
  const auto turn = queue_.remove(ticket);
  if (!turn) return false;
  const std::string& client = turn->waiting.client;
  if (!in_engine_.contains(client)) queue_.forget(client);
  return true;
}

void Admission::finished(const std::string& client, int64_t num_sequences, Clock::time_point now) {
  num_in_engine_ -= num_sequences;
  const auto in_engine = in_engine_.find(client);
  in_engine->second.num_sequences -= num_sequences;
  if (--in_engine->second.num_requests == 0) {
    in_engine_.erase(in_engine);
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
  while (const Turn* next = queue_.front()) {
    // Only the next one takes free room, or large requests would wait for ever behind small ones.
    std::optional<Turn> turn = has_room(next->waiting.num_sequences)
                                   ? queue_.pop()
                                   : queue_.pop_if([this](const Turn& first) {
                                       return has_less_than_its_part(first.waiting);
                                     });
    if (!turn) break;
    const Waiting& waiting = turn->waiting;
    num_in_engine_ += waiting.num_sequences;
    InEngine& in_engine = in_engine_.insert(std::move(turn->seat)).position->second;
    ++in_engine.num_requests;
    in_engine.num_sequences += waiting.num_sequences;
    in_engine.weight = waiting.weight;
    queue_.charge(waiting.client, waiting.num_prompt_tokens);
    waiting.start();
  }
}

int64_t Admission::retry_after_s() const {
  const double wait_s = static_cast<double>(num_queued() + 1) * gap_s_;
  return static_cast<int64_t>(std::ceil(std::clamp(wait_s, 1.0, kLongestRetry)));
}

}  // namespace quire::server
