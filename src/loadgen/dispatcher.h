#pragma once
// Decides which request is sent when: arrivals, the limit on requests at a time, retries, the end.
//
// Requests are numbered from 0 in the order in which they are first sent. All times are seconds
// from the start and come from the caller, who never lets them run backwards. Thread safety: one
// thread at a time.
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "loadgen/arrivals.h"

namespace quire::loadgen {

struct Schedule {
  static constexpr double kUnlimited = std::numeric_limits<double>::infinity();

  std::optional<int64_t> num_requests;  // in all; nothing: any number
  double duration_s = kUnlimited;       // none is sent after that
  double request_rate = kUnlimited;     // a second; infinity: all at once
  double burstiness = 1;
  uint64_t seed = 0;
  std::optional<int64_t> max_concurrency;
};

class Dispatcher {
 public:
  explicit Dispatcher(const Schedule& schedule);

  // A request to send now, if there is one; it counts as running from then on.
  std::optional<int64_t> next(double now_s);

  // After next() returned nothing: until when it will return nothing unless a request finishes;
  // nothing if it takes a finished request.
  std::optional<double> next_time(double now_s) const;

  // A running request has ended. Its place stays taken until `free_at_s`, to pause before the next.
  void finished(double free_at_s = 0);
  // A running request is to be sent again at `at_s`; until then it keeps its place among the
  // running. False if that is after the end of the run: then it must be finished().
  bool retry(int64_t request, double at_s);

  // Running requests, those waiting for another try among them.
  int64_t num_running() const { return num_running_; }
  // Requests sent so far, each once.
  int64_t num_sent() const { return num_sent_; }
  // Nothing runs and nothing is left to be sent.
  bool done(double now_s) const;

 private:
  using Retry = std::pair<double, int64_t>;  // time, request

  bool all_sent(double now_s) const;
  bool has_place() const;

  Schedule schedule_;
  Arrivals arrivals_;
  double next_arrival_s_;
  int64_t num_sent_ = 0;
  int64_t num_running_ = 0;
  std::priority_queue<Retry, std::vector<Retry>, std::greater<>> retries_;
  // When the places of requests that have finished become free, of those that are not yet.
  std::priority_queue<double, std::vector<double>, std::greater<>> pauses_;
};

}  // namespace quire::loadgen
