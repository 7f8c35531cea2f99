#include "server/observe/trace_exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/observe/http_post.h"
#include "server/observe/otlp_spans.h"
#include "server/observe/request_log.h"
#include "server/observe/signal_free_thread.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongestPause{30'000};
constexpr std::chrono::minutes kBetweenWarnings{1};
constexpr std::chrono::milliseconds kMemoryPause{10};  // before what had no memory is tried again

// What OTLP calls retryable: the collector is not there, or busy.
bool may_be_sent_again(int status) {
  return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

class TraceExporter::Impl {
 public:
  explicit Impl(TraceExporterConfig config)
      : config_(std::move(config)),
        random_(std::random_device()()),
        post_(config_.url),
        thread_(signal_free_thread([this] { run(); })) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_at_ = Clock::now() + config_.last_sends;
    }
    changed_.notify_all();
    thread_.join();
  }

  void record(const RequestRecord& record) {
    if (record.trace && !record.trace->sampled) return;
    Span span{.record = record};
    cut_texts(span.record);
    {
      const std::lock_guard lock(mutex_);
      if (queue_.size() >= config_.max_queued_spans) {
        lost_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      // Of random bits, not all 0: the lowest is set.
      span.span_id = fmt::format("{:016x}", random_() | 1);
      span.trace_id = record.trace ? record.trace->trace_id
                                   : fmt::format("{:016x}{:016x}", random_(), random_() | 1);
      queue_.push_back(std::move(span));
    }
    changed_.notify_all();
  }

  int64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  // Without memory it waits: requests take theirs back when they end.
  void run() {
    while (true) {
      try {
        if (batch_.empty()) take_batch();
        if (batch_.empty()) break;
        send();
      } catch (const std::bad_alloc&) {
        if (is_late()) {
          lose_all();
          break;
        }
        std::this_thread::sleep_for(kMemoryPause);
      }
    }
    constexpr int kTries = 2;
    for (int tried = 0; tried < kTries && lost() != reported_; ++tried) {
      try {
        warn("the server stops");
      } catch (const std::bad_alloc&) {
        std::this_thread::sleep_for(kMemoryPause);
      }
    }
  }

  void lose_all() {
    const std::lock_guard lock(mutex_);
    lost_.fetch_add(static_cast<int64_t>(batch_.size() + queue_.size()), std::memory_order_relaxed);
    batch_.clear();
    queue_.clear();
  }

  // Waits for spans, and a little longer for more; none once it is to stop and all are taken.
  void take_batch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stop_at_ || !queue_.empty(); });
    changed_.wait_for(lock, config_.delay,
                      [this] { return stop_at_ || queue_.size() >= config_.max_batch_spans; });
    const size_t size = std::min(queue_.size(), config_.max_batch_spans);
    batch_.reserve(size);
    const auto end = queue_.begin() + static_cast<std::ptrdiff_t>(size);
    std::move(queue_.begin(), end, std::back_inserter(batch_));
    queue_.erase(queue_.begin(), end);
  }

  // The batch is empty afterwards: sent or lost.
  void send() {
    const std::string body = otlp_traces_json(batch_);
    for (auto pause = config_.first_pause;; pause = std::min(2 * pause, kLongestPause)) {
      const HttpPostResult result = post_.send(body, time_left(), [this] { return is_late(); });
      if (result.status >= 200 && result.status < 300) {
        end_batch(sent_);
        warn_of_losses("");
        return;
      }
      const std::string problem = result.status == 0
                                      ? result.problem
                                      : fmt::format("it answered with status {}", result.status);
      if (!may_be_sent_again(result.status) || !wait_before_next(pause)) {
        end_batch(lost_);
        warn_of_losses(problem);
        return;
      }
      warn_of_losses(problem);
    }
  }

  void end_batch(std::atomic<int64_t>& count) {
    count.fetch_add(static_cast<int64_t>(batch_.size()), std::memory_order_relaxed);
    batch_.clear();
  }

  std::chrono::milliseconds time_left() {
    const std::lock_guard lock(mutex_);
    if (!stop_at_) return config_.timeout;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*stop_at_ - Clock::now());
    return std::clamp(left, std::chrono::milliseconds(1), config_.timeout);
  }

  bool is_late() {
    const std::lock_guard lock(mutex_);
    return stop_at_ && Clock::now() >= *stop_at_;
  }

  // False where it is to stop: what could not be sent is not sent again.
  bool wait_before_next(std::chrono::milliseconds pause) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this] { return stop_at_.has_value(); });
  }

  // Says how many were lost since the last time that it did; `problem`: why the last batch did not
  // get through; empty: it did.
  void warn_of_losses(const std::string& problem) {
    const Clock::time_point now = Clock::now();
    if (problem.empty() && lost() == reported_) return;
    if (warned_at_ && now < *warned_at_ + kBetweenWarnings) return;
    warn(problem.empty() ? "it takes them again" : problem);
    warned_at_ = now;
  }

  void warn(const std::string& how_it_is) {
    const int64_t all = lost();
    // What stands behind the path may be a secret.
    config_.warn(fmt::format("traces for {}: {}; spans lost: {}",
                             config_.url.substr(0, config_.url.find('?')), how_it_is,
                             all - reported_));
    reported_ = all;
  }

  const TraceExporterConfig config_;
  std::mutex mutex_;  // of these four
  std::condition_variable changed_;
  std::deque<Span> queue_;
  std::mt19937_64 random_;
  std::optional<Clock::time_point> stop_at_;

  std::atomic<int64_t> sent_{0};
  std::atomic<int64_t> lost_{0};
  // The thread's own.
  HttpPost post_;
  std::vector<Span> batch_;
  int64_t reported_ = 0;
  std::optional<Clock::time_point> warned_at_;
  std::thread thread_;  // last: it uses the others
};

TraceExporter::TraceExporter(TraceExporterConfig config)
    : impl_(std::make_unique<Impl>(std::move(config))) {}
TraceExporter::~TraceExporter() = default;

void TraceExporter::record(const RequestRecord& record) {
  impl_->record(record);
}
int64_t TraceExporter::sent_spans() const {
  return impl_->sent();
}
int64_t TraceExporter::lost_spans() const {
  return impl_->lost();
}

}  // namespace quire::server
