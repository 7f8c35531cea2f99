#include "server/observe/access_log_format.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "server/observe/access_log_text.h"

namespace quire::server {
namespace {

// A line stays a line that people and log collectors take whole.
constexpr size_t kMaxField = 512;
constexpr size_t kMaxMessage = 4096;

constexpr std::string_view kReset = "\x1b[0m";

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

std::string_view color_of(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "\x1b[32m";
    case LogLevel::kWarning:
      return "\x1b[33m";
    case LogLevel::kError:
      return "\x1b[31m";
  }
  return "";
}

// What an operator should look at: being full, and being wrong.
LogLevel level_of(const RequestRecord& record) {
  if (record.status == 429 || record.status == 503) return LogLevel::kWarning;
  return record.status >= 500 ? LogLevel::kError : LogLevel::kInfo;
}

// Builds {"name":value,...}; names are ours and need no escaping.
class JsonLine {
 public:
  void text(std::string_view name, std::string_view value, size_t max_bytes = kMaxField) {
    begin(name);
    append_json_string(line_, cut_text(value, max_bytes));
  }
  void text_or_null(std::string_view name, std::string_view value, size_t max_bytes = kMaxField) {
    if (!value.empty()) return text(name, value, max_bytes);
    begin(name);
    line_ += "null";
  }
  template <typename T>
  void number(std::string_view name, T value) {
    begin(name);
    fmt::format_to(std::back_inserter(line_), "{}", value);
  }
  template <typename T>
  void number_or_null(std::string_view name, const std::optional<T>& value) {
    if (value) return number(name, *value);
    begin(name);
    line_ += "null";
  }
  void milliseconds(std::string_view name, double seconds) {
    begin(name);
    fmt::format_to(std::back_inserter(line_), "{:.3f}", seconds * 1000);
  }
  std::string finish() && { return std::move(line_ += '}'); }

 private:
  void begin(std::string_view name) {
    fmt::format_to(std::back_inserter(line_), "{}\"{}\":", line_.empty() ? '{' : ',', name);
  }
  std::string line_;
};

void add_time_or_null(JsonLine& line, std::string_view name,
                      const std::optional<std::chrono::system_clock::time_point>& time) {
  line.text_or_null(name, time ? format_time(*time) : "");
}

void add_all_facts(JsonLine& line, const RequestRecord& record) {
  line.number("steps", record.steps);
  line.number("preemptions", record.preemptions);
  line.number("draft_tokens", record.draft_tokens);
  line.number("accepted_draft_tokens", record.accepted_draft_tokens);
  add_time_or_null(line, "first_token_at", first_token_time(record));
  add_time_or_null(line, "last_token_at", last_token_time(record));
  line.number("running_at_arrival", record.running_at_arrival);
  line.number("waiting_at_arrival", record.waiting_at_arrival);
}

std::string access_json(const RequestRecord& record, LineDetail detail) {
  JsonLine line;
  line.text("time", format_time(record.arrived));
  line.text("level", name_of(level_of(record)));
  line.text("event", "request");
  line.text("request_id", record.request_id);
  line.text("client", record.client);
  line.text("method", record.method);
  line.text("path", record.path);
  line.number("status", record.status);
  line.text_or_null("model", record.model);
  line.number("stream", record.stream);
  line.text_or_null("finish_reason", record.finish_reason);
  line.text_or_null("reject_reason", record.reject_reason);
  line.number("client_disconnected", record.client_disconnected);
  line.number("prompt_tokens", record.prompt_tokens);
  line.number("cached_tokens", record.cached_tokens);
  line.number("output_tokens", record.output_tokens);
  line.milliseconds("queue_ms", record.queue_s);
  line.milliseconds("prefill_ms", record.prefill_s);
  line.milliseconds("decode_ms", record.decode_s);
  line.milliseconds("ttft_ms", record.ttft_s);
  line.milliseconds("total_ms", record.total_s);
  line.number("n", record.n);
  line.number_or_null("max_tokens", record.max_tokens);
  line.number_or_null("temperature", record.temperature);
  line.number_or_null("top_p", record.top_p);
  line.number_or_null("timeout_s", record.timeout_s);
  if (detail == LineDetail::kAllFacts) add_all_facts(line, record);
  line.text_or_null("error", record.error, kMaxMessage);
  return std::move(line).finish();
}

// "2026-11-21T07:16:42.123Z info    ".
std::string text_head(std::chrono::system_clock::time_point time, LogLevel level, bool color) {
  return fmt::format("{} {}{:<7}{} ", format_time(time), color ? color_of(level) : "",
                     name_of(level), color ? kReset : "");
}

void append_field(std::string& line, std::string_view name, std::string_view value,
                  size_t max_bytes = kMaxField) {
  if (value.empty()) return;
  fmt::format_to(std::back_inserter(line), " {}=", name);
  append_readable(line, cut_text(value, max_bytes));
}

template <typename T>
void append_number(std::string& line, std::string_view name, const std::optional<T>& value) {
  if (value) fmt::format_to(std::back_inserter(line), " {}={}", name, *value);
}

void append_all_facts(std::string& line, const RequestRecord& record) {
  fmt::format_to(std::back_inserter(line), " steps={} preemptions={}", record.steps,
                 record.preemptions);
  if (record.draft_tokens > 0) {
    fmt::format_to(std::back_inserter(line), " drafts={} accepted={}", record.draft_tokens,
                   record.accepted_draft_tokens);
  }
  if (const auto time = first_token_time(record)) {
    append_field(line, "first_token", format_time(*time));
  }
  if (const auto time = last_token_time(record)) {
    append_field(line, "last_token", format_time(*time));
  }
  fmt::format_to(std::back_inserter(line), " running_before={} waiting_before={}",
                 record.running_at_arrival, record.waiting_at_arrival);
}

std::string access_text(const RequestRecord& record, bool color, LineDetail detail) {
  const LogLevel level = level_of(record);
  std::string line = text_head(record.arrived, level, color);
  append_readable(line, cut_text(record.method, kMaxField));
  line += ' ';
  append_readable(line, cut_text(record.path, kMaxField));
  fmt::format_to(std::back_inserter(line), " {}{}{} {:.1f}ms", color ? color_of(level) : "",
                 record.status, color ? kReset : "", record.total_s * 1000);
  append_field(line, "id", record.request_id);
  append_field(line, "client", record.client);
  append_field(line, "model", record.model);
  append_field(line, "finish", record.finish_reason);
  append_field(line, "rejected", record.reject_reason);
  if (!record.finish_reason.empty()) {
    fmt::format_to(std::back_inserter(line),
                   " prompt={} cached={} output={} queue={:.1f}ms prefill={:.1f}ms decode={:.1f}ms "
                   "ttft={:.1f}ms n={}",
                   record.prompt_tokens, record.cached_tokens, record.output_tokens,
                   record.queue_s * 1000, record.prefill_s * 1000, record.decode_s * 1000,
                   record.ttft_s * 1000, record.n);
  }
  append_number(line, "max_tokens", record.max_tokens);
  append_number(line, "temperature", record.temperature);
  append_number(line, "top_p", record.top_p);
  append_number(line, "timeout_s", record.timeout_s);
  if (record.stream) line += " stream";
  if (record.client_disconnected) line += " disconnected";
  if (detail == LineDetail::kAllFacts) append_all_facts(line, record);
  append_field(line, "error", record.error, kMaxMessage);
  return line;
}

}  // namespace

std::string format_access_line(const RequestRecord& record, LogFormat format, bool color,
                               LineDetail detail) {
  return format == LogFormat::kJson ? access_json(record, detail)
                                    : access_text(record, color, detail);
}

std::string format_log_line(LogLevel level, std::string_view message, std::string_view request_id,
                            std::chrono::system_clock::time_point time, LogFormat format,
                            bool color) {
  if (format == LogFormat::kJson) {
    JsonLine line;
    line.text("time", format_time(time));
    line.text("level", name_of(level));
    line.text("event", "log");
    if (!request_id.empty()) line.text("request_id", request_id);
    line.text("message", message, kMaxMessage);
    return std::move(line).finish();
  }
  std::string line = text_head(time, level, color);
  append_sentence(line, cut_text(message, kMaxMessage));
  append_field(line, "id", request_id);
  return line;
}

}  // namespace quire::server
