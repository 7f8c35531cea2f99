#pragma once
// The server's log: one line a request, and lines of its own, as text or as JSON.
//
// Nothing that a client sends can forge or break a line: control characters, line ends and invalid
// UTF-8 are escaped. The caller never waits: lines go through a bounded queue to a thread that
// writes. While the log's reader stalls, lines are dropped and counted; once writing goes on, a
// warning says how many.
//
// Thread safety: every method from any thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/observe/request_record.h"

namespace quire::server {

enum class LogFormat { kText, kJson };
enum class LogLevel { kInfo, kWarning, kError };

// "text", "json"; nothing for another name.
std::optional<LogFormat> parse_log_format(std::string_view name);

// What a request's line contains.
enum class LineDetail {
  kUsual,
  kAllFacts,  // what the engine did for it, when its tokens came and what it met, too
};

// One line, without its line end. `color`: with ANSI colours (text only).
std::string format_access_line(const RequestRecord& record, LogFormat format, bool color = false,
                               LineDetail detail = LineDetail::kUsual);

struct AccessLogConfig {
  LogFormat format = LogFormat::kText;
  int fd = 2;                              // left open
  std::size_t max_queued_bytes = 4 << 20;  // lines beyond are dropped
  // Whether to use colours; unset: where fd is a terminal, NO_COLOR is not set and the format is
  // text.
  std::optional<bool> color{};
};

class AccessLog {
 public:
  explicit AccessLog(AccessLogConfig config = {});
  // Writes queued lines, for at most about a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // The line of a request that is over.
  void request(const RequestRecord& record, LineDetail detail = LineDetail::kUsual);

  // A line of the server's own; `request_id` if it is about a request.
  void log(LogLevel level, std::string_view message, std::string_view request_id = {});
  void info(std::string_view message) { log(LogLevel::kInfo, message); }
  void warning(std::string_view message) { log(LogLevel::kWarning, message); }
  void error(std::string_view message) { log(LogLevel::kError, message); }

  // Waits until the lines that are queued now are written or given up; false if that takes longer.
  bool flush(std::chrono::milliseconds at_most = std::chrono::seconds(1));
  // Lines that were never written, since the start.
  int64_t dropped_lines() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
