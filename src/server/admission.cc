#include "server/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace quire::server {
namespace {

// Sequences that may wait inside the engine, so that it is never idle between a step and the next
// turn.
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

bool Admission::adapter_has_room(const std::string& adapter) const {
  if (adapter.empty()) return true;
  const auto in_engine = adapters_.find(adapter);
  if (in_engine != adapters_.end()) return in_engine->second.is_read;
  return config_.max_loras == 0 || std::ssize(adapters_) < config_.max_loras;
}

bool Admission::has_less_than_its_part(const Waiting& waiting) const {
  // Twice as many as there are places, so that the number of requests in the engine has a limit.
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
  Turn turn{.waiting = std::move(waiting), .seat = {}, .adapter_seat = {}};
  if (!turn.waiting.adapter.empty()) {
    std::map<std::string, AdapterInEngine> adapter_seats;
    adapter_seats.try_emplace(turn.waiting.adapter);
    turn.adapter_seat = adapter_seats.extract(adapter_seats.begin());
  }
  const bool has_adapter = !turn.waiting.adapter.empty();
  std::map<std::string, InEngine> seats;
  seats.try_emplace(turn.waiting.client);
  turn.seat = seats.extract(seats.begin());
  const std::string client = turn.waiting.client;
  const int32_t weight = turn.waiting.weight;
  const Ticket ticket = queue_.push(client, priority, std::move(turn), weight);
  --num_preparing_;
  if (has_adapter) ++num_waiting_with_adapters_;
  return ticket;
}

bool Admission::leave(Ticket ticket) {
  const auto turn = queue_.remove(ticket);
  if (!turn) return false;
  if (!turn->waiting.adapter.empty()) --num_waiting_with_adapters_;
  const std::string& client = turn->waiting.client;
  if (!in_engine_.contains(client)) queue_.forget(client);
  return true;
}

void Admission::finished(const std::string& client, int64_t num_sequences, Clock::time_point now,
                         const std::string& adapter) {
  num_in_engine_ -= num_sequences;
  const auto in_engine = in_engine_.find(client);
  in_engine->second.num_sequences -= num_sequences;
  if (--in_engine->second.num_requests == 0) {
    in_engine_.erase(in_engine);
    queue_.forget(client);
  }
  if (const auto served = adapters_.find(adapter);
      served != adapters_.end() && --served->second.num_requests == 0) {
    adapters_.erase(served);
  }
  if (last_end_ != Clock::time_point{}) {
    const double gap = std::chrono::duration<double>(now - last_end_).count();
    gap_s_ = gap_s_ > 0 ? gap_s_ + kSmoothing * (gap - gap_s_) : gap;
  }
  last_end_ = now;
  // The time until the next request comes says nothing about the rate.
  if (num_in_engine_ == 0 && queue_.empty()) last_end_ = {};
}

void Admission::adapter_is_read(const std::string& adapter) {
  adapters_.at(adapter).is_read = true;
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
  while (const std::optional<Ticket> next = choose_next()) give_turn(queue_.pop(*next));
}

std::optional<Admission::Ticket> Admission::find_overdue() {
  std::optional<Ticket> overdue;
  if (config_.max_loras == 0 || num_waiting_with_adapters_ == 0) return overdue;
  queue_.for_each([&](Ticket ticket, Turn& turn) {
    const std::string& adapter = turn.waiting.adapter;
    if (adapter.empty()) return;
    if (adapters_.contains(adapter)) return turn.passed_since.reset();
    if (!turn.passed_since && !adapter_has_room(adapter)) {
      turn.passed_since = num_adapters_begun_;
      if (!std::exchange(turn.waited, true)) num_lora_waits_ += turn.waiting.num_sequences;
    }
    if (overdue) return;
    if (turn.passed_since && num_adapters_begun_ - *turn.passed_since >= kMaxLoraOvertakes) {
      overdue = ticket;
    }
  });
  return overdue;
}

std::optional<Admission::Ticket> Admission::choose_next() {
  const std::optional<Ticket> overdue = find_overdue();
  const Turn* const reserved = overdue ? &queue_.at(*overdue) : nullptr;
  const auto waits_for_adapter = [&](const Turn& turn) {
    if (reserved != nullptr && &turn != reserved && !turn.waiting.adapter.empty()) return true;
    return !adapter_has_room(turn.waiting.adapter);
  };
  // Independent of the client's other requests and their priorities, which could otherwise hold up
  // all adapters.
  const bool is_overdue_next = reserved != nullptr && !waits_for_adapter(*reserved);
  const std::optional<Ticket> next =
      is_overdue_next ? overdue : queue_.next(waits_for_adapter, [](const Turn&) { return true; });
  if (!next) return std::nullopt;
  // Only the next one takes free room, or large requests would wait for ever behind small ones.
  if (has_room(queue_.at(*next).waiting.num_sequences)) return next;
  return queue_.next(waits_for_adapter,
                     [this](const Turn& turn) { return has_less_than_its_part(turn.waiting); });
}

void Admission::give_turn(Turn turn) {
  const Waiting& waiting = turn.waiting;
  num_in_engine_ += waiting.num_sequences;
  InEngine& in_engine = in_engine_.insert(std::move(turn.seat)).position->second;
  ++in_engine.num_requests;
  in_engine.num_sequences += waiting.num_sequences;
  in_engine.weight = waiting.weight;
  if (!waiting.adapter.empty()) {
    ++adapters_.insert(std::move(turn.adapter_seat)).position->second.num_requests;
    ++num_adapters_begun_;
    --num_waiting_with_adapters_;
  }
  queue_.charge(waiting.client, waiting.num_prompt_tokens);
  waiting.start();
}

void Admission::add_to(LoraStats& stats) {
  stats.num_waits += num_lora_waits_;
  if (num_waiting_with_adapters_ == 0) return;
  std::set<std::string> waiting(stats.waiting.begin(), stats.waiting.end());
  queue_.for_each([&](Ticket, const Turn& turn) {
    const std::string& adapter = turn.waiting.adapter;
    if (!adapter.empty() && !adapters_.contains(adapter)) waiting.insert(adapter);
  });
  stats.waiting.assign(waiting.begin(), waiting.end());
}

int64_t Admission::retry_after_s() const {
  const double wait_s = static_cast<double>(num_queued() + 1) * gap_s_;
  return static_cast<int64_t>(std::ceil(std::clamp(wait_s, 1.0, kLongestRetry)));
}

}  // namespace quire::server
