#include "server/observe/access_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "server/observe/access_log_format.h"
#include "server/observe/signal_free_thread.h"

namespace quire::server {
namespace {

using Clock = std::chrono::steady_clock;

// A pipe or socket that poll() calls writable takes this much at once (PIPE_BUF), so that write()
// never waits.
constexpr size_t kWriteBytes = 4096;
constexpr int kPollMilliseconds = 50;  // how soon a stalled writer notices that it is to stop
constexpr auto kLastWrites = std::chrono::seconds(1);

bool wants_color(const AccessLogConfig& config) {
  if (config.format == LogFormat::kJson) return false;
  if (config.color) return *config.color;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(config.fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int64_t count_lines(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n');
}

}  // namespace

class AccessLog::Impl {
 public:
  explicit Impl(const AccessLogConfig& config)
      : config_(config),
        color_(wants_color(config)),
        writer_(signal_free_thread([this] { run(); })) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_at_ = Clock::now() + kLastWrites;
    }
    changed_.notify_all();
    writer_.join();
  }

  void request(const RequestRecord& record, LineDetail detail) {
    push(format_access_line(record, config_.format, color_, detail));
  }

  void log(LogLevel level, std::string_view message, std::string_view request_id) {
    push(format_log_line(level, message, request_id, std::chrono::system_clock::now(),
                         config_.format, color_));
  }

  bool flush(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    const int64_t wanted = queued_lines_;
    return changed_.wait_for(lock, at_most, [&] { return done_lines_ >= wanted; });
  }

  int64_t dropped_lines() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  void push(std::string line) {
    line += '\n';
    {
      const std::lock_guard lock(mutex_);
      if (pending_.size() + line.size() > config_.max_queued_bytes) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      pending_ += line;
      ++queued_lines_;
    }
    changed_.notify_all();
  }

  void run() {
    std::string lines;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_at_ || !pending_.empty(); });
        if (pending_.empty()) return;
        lines.swap(pending_);
      }
      const int64_t count = count_lines(lines);
      const bool written = write_all(lines);
      if (written) report_dropped();
      lines.clear();
      {
        const std::lock_guard lock(mutex_);
        done_lines_ += count;
      }
      changed_.notify_all();
    }
  }

  // Says how many lines were lost since it last said so; without memory, the next time.
  void report_dropped() {
    const int64_t dropped = dropped_lines();
    if (dropped == reported_) return;
    try {
      const std::string message = fmt::format(
          "{} log lines were lost, because the log was not read as fast as it was written",
          dropped - reported_);
      const std::string line =
          format_log_line(LogLevel::kWarning, message, {}, std::chrono::system_clock::now(),
                          config_.format, color_);
      reported_ = dropped;
      write_all(line);
      write_all("\n");
    } catch (const std::bad_alloc&) {
      return;
    }
  }

  // False where the log cannot be written, or not in the time that is left after the destructor was
  // called; the lines that are not written whole count as dropped.
  bool write_all(std::string_view text) {
    while (!text.empty()) {
      pollfd poll_fd = {config_.fd, POLLOUT, 0};
      const int ready = poll(&poll_fd, 1, kPollMilliseconds);
      const ssize_t size =
          ready > 0 ? write(config_.fd, text.data(), std::min(text.size(), kWriteBytes)) : 0;
      if (size > 0) {
        text.remove_prefix(static_cast<size_t>(size));
        continue;
      }
      const bool failed = size < 0 && errno != EINTR && errno != EAGAIN;
      if (failed || time_is_up()) {
        dropped_.fetch_add(count_lines(text), std::memory_order_relaxed);
        return false;
      }
    }
    return true;
  }

  bool time_is_up() {
    const std::lock_guard lock(mutex_);
    return stop_at_ && Clock::now() >= *stop_at_;
  }

  const AccessLogConfig config_;
  const bool color_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;       // whole lines
  int64_t queued_lines_ = 0;  // since the start
  int64_t done_lines_ = 0;    // of these, written or given up
  std::optional<Clock::time_point> stop_at_;
  std::atomic<int64_t> dropped_{0};
  int64_t reported_ = 0;  // the writer's own
  std::thread writer_;    // last: it uses the others
};

std::optional<LogFormat> parse_log_format(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return std::nullopt;
}

AccessLog::AccessLog(AccessLogConfig config) : impl_(std::make_unique<Impl>(config)) {}
AccessLog::~AccessLog() = default;

void AccessLog::request(const RequestRecord& record, LineDetail detail) {
  impl_->request(record, detail);
}
void AccessLog::log(LogLevel level, std::string_view message, std::string_view request_id) {
  impl_->log(level, message, request_id);
}
bool AccessLog::flush(std::chrono::milliseconds at_most) {
  return impl_->flush(at_most);
}
int64_t AccessLog::dropped_lines() const {
  return impl_->dropped_lines();
}

}  // namespace quire::server
