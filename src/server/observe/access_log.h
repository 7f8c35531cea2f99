#pragma once
// The server's log: one line a request, and lines of its own, as text or as JSON.
//
// Nothing that a client sends can forge or break a line: control characters, line ends and invalid
// UTF-8 are escaped. The caller never waits: lines go through a bounded queue to a thread that
// writes. When the log's reader stalls, lines are dropped and counted, and a warning says how many
// once writing goes on.
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

// What the line of a request says.
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
  // Colours; none: where fd is a terminal, NO_COLOR is not set and the format is text.
  std::optional<bool> color{};
};

class AccessLog {
 public:
  explicit AccessLog(AccessLogConfig config = {});
  // Writes what is queued, for at most about a second.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // The line of a request that is over.
  void request(const RequestRecord& record, LineDetail detail = LineDetail::kUsual);

  // A line of the server's own; request_id where it is about one.
  void log(LogLevel level, std::string_view message, std::string_view request_id = {});
  void info(std::string_view message) { log(LogLevel::kInfo, message); }
  void warning(std::string_view message) { log(LogLevel::kWarning, message); }
  void error(std::string_view message) { log(LogLevel::kError, message); }

  // Waits until what was queued before is written or given up; false if that takes longer.
  bool flush(std::chrono::milliseconds at_most = std::chrono::seconds(1));
  // Lines that were never written, since the start.
  int64_t dropped_lines() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::server
