#include "loadgen/load_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "loadgen/http_client.h"
#include "loadgen/response_reader.h"
#include "loadgen/text_checker.h"
#include "quire/error.h"

namespace quire::loadgen {
namespace {

constexpr double kProgressInterval = 0.1;
constexpr double kDefaultRetryAfter = 1;
// Between requests of a stream that goes on for a time, so that a dead server is not hammered.
constexpr double kPauseAfterFailure = 0.1;

// The most requests that can be open at once; nothing if the schedule sets no bound.
std::optional<int64_t> most_at_once(const Schedule& schedule) {
  if (!schedule.max_concurrency || !schedule.num_requests) {
    return schedule.max_concurrency ? schedule.max_concurrency : schedule.num_requests;
  }
  return std::min(*schedule.max_concurrency, *schedule.num_requests);
}

// Lets the process open as many sockets as the system allows it, which must do for `connections`.
void allow_connections(std::optional<int64_t> connections) {
  constexpr int64_t kOthers = 64;  // standard streams, epoll, resolver, libraries
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (connections && static_cast<rlim_t>(*connections + kOthers) > limit.rlim_max) {
    throw Error(
        fmt::format("{} connections at once take {} file descriptors and the system allows {}: set "
                    "--max-concurrency lower, or raise the limit with ulimit -n",
                    *connections, *connections + kOthers, limit.rlim_max));
  }
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

bool is_readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return fd >= 0 && poll(&entry, 1, 0) > 0;
}

class LoadRun {
 public:
  LoadRun(const std::vector<LoadRequest>& requests, const LoadOptions& options,
          const std::function<void(const LoadProgress&)>& on_progress)
      : requests_(requests),
        options_(options),
        on_progress_(on_progress),
        dispatcher_(options.schedule),
        checker_(requests, options.expect_identical),
        client_(options.http, options.stop_fd) {}

  LoadReport run() {
    while (!dispatcher_.done(elapsed())) {
      send_due();
      report_progress();
      client_.wait(time_to_wait());
      if (is_readable(options_.stop_fd)) {
        report_.stopped = true;
        report_.num_interrupted = dispatcher_.num_running();
        break;
      }
    }
    report_.duration_s = elapsed();
    return std::move(report_);
  }

 private:
  // One request being sent and answered; used again for the next.
  class Stream : public HttpClient::Handler {
   public:
    explicit Stream(LoadRun& run) : run_(run) {}

    void begin(int64_t number) {
      number_ = number;
      const double now_s = run_.elapsed();
      reader_.emplace(now_s, run_.checker_.active());
      const LoadRequest& request = run_.request(number);
      run_.client_.post(request.path, request.body, *this);
    }

    void on_headers(int status, std::string_view content_type) override {
      reader_->on_headers(status, content_type);
    }
    bool on_body(std::string_view bytes) override {
      return reader_->on_body(bytes, run_.elapsed());
    }
    void on_end(int status, std::string_view error, std::optional<double> retry_after_s) override {
      RequestResult result = reader_->finish(status, error, run_.elapsed());
      result.retry_after_s = retry_after_s;
      run_.end(number_, result, *this);
    }

   private:
    LoadRun& run_;
    int64_t number_ = 0;
    std::optional<ResponseReader> reader_;
  };

  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  size_t index_of(int64_t number) const { return static_cast<size_t>(number) % requests_.size(); }
  const LoadRequest& request(int64_t number) const { return requests_[index_of(number)]; }

  void send_due() {
    while (const std::optional<int64_t> number = dispatcher_.next(elapsed())) {
      if (idle_.empty()) {
        streams_.push_back(std::make_unique<Stream>(*this));
        idle_.push_back(streams_.back().get());
      }
      Stream& stream = *idle_.back();
      idle_.pop_back();
      stream.begin(*number);
    }
    report_.peak_concurrency = std::max(report_.peak_concurrency, dispatcher_.num_running());
  }

  double time_to_wait() const {
    const double now_s = elapsed();
    double until_s = now_s + (on_progress_ ? kProgressInterval : 3600.0);
    if (const std::optional<double> next_s = dispatcher_.next_time(now_s)) {
      until_s = std::min(until_s, *next_s);
    }
    return until_s - now_s;
  }

  void end(int64_t number, const RequestResult& result, Stream& stream) {
    idle_.push_back(&stream);
    if (result.outcome == Outcome::kRejected && options_.retry_rejected && retry(number, result)) {
      report_.measurements.add_retry();
      return;
    }
    rejected_since_.erase(number);
    const bool open_ended = !options_.schedule.num_requests;
    const bool pause = open_ended && result.outcome != Outcome::kSucceeded;
    dispatcher_.finished(pause ? elapsed() + kPauseAfterFailure : 0);
    if (result.outcome == Outcome::kSucceeded && checker_.active()) {
      if (std::optional<TextMismatch> mismatch = checker_.check(index_of(number), result.text)) {
        report_.measurements.add_mismatch(std::move(*mismatch));
        return;
      }
    }
    report_.measurements.add(request(number), result);
  }

  // False if the request would come too late then.
  bool retry(int64_t number, const RequestResult& result) {
    const double now_s = elapsed();
    const double since_s = rejected_since_.try_emplace(number, now_s).first->second;
    const double at_s = now_s + result.retry_after_s.value_or(kDefaultRetryAfter);
    return at_s < since_s + options_.http.timeout_s && dispatcher_.retry(number, at_s);
  }

  void report_progress() {
    const double now_s = elapsed();
    if (!on_progress_ || now_s < next_progress_s_) return;
    next_progress_s_ = now_s + kProgressInterval;
    on_progress_({.measurements = report_.measurements,
                  .num_running = dispatcher_.num_running(),
                  .elapsed_s = now_s});
  }

  const std::vector<LoadRequest>& requests_;
  const LoadOptions& options_;
  const std::function<void(const LoadProgress&)>& on_progress_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Dispatcher dispatcher_;
  TextChecker checker_;
  std::unordered_map<int64_t, double> rejected_since_;  // requests waiting for another try
  LoadReport report_;
  double next_progress_s_ = 0;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> idle_;
  HttpClient client_;  // last: it goes before the streams that it calls
};

}  // namespace

LoadReport run_load(const std::vector<LoadRequest>& requests, const LoadOptions& options,
                    const std::function<void(const LoadProgress&)>& on_progress) {
  check(!requests.empty(), "a load run has requests");
  allow_connections(most_at_once(options.schedule));
  return LoadRun(requests, options, on_progress).run();
}

}  // namespace quire::loadgen
