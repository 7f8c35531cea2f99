#include "http/response_head.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace quire::http {
namespace {

// RFC 9110, 5.6.7; strftime would ask the locale.
std::string http_date(std::time_t now) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<std::size_t>(utc.tm_wday)], utc.tm_mday,
                kMonths[static_cast<std::size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                utc.tm_min, utc.tm_sec);
  return text.data();
}

void append_header(std::string& head, std::string_view name, std::string_view value) {
  const std::size_t begin = head.size();
  head.append(name).append(": ").append(value);
  for (std::size_t i = begin; i < head.size(); ++i) {
    const auto c = static_cast<unsigned char>(head[i]);
    if ((c < 0x20 && c != '\t') || c == 0x7f) head[i] = ' ';
  }
  head.append("\r\n");
}

}  // namespace

bool status_has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string response_head(const Response& response, const AnswerFormat& format, Framing framing) {
  std::string head;
  head.reserve(256);
  head.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
  head.append(reason_phrase(response.status)).append("\r\n");
  append_header(head, "Date", http_date(std::time(nullptr)));
  append_header(head, "Server", "quire");
  if (!format.keep_alive) {
    append_header(head, "Connection", "close");
  } else if (format.http_1_0) {
    append_header(head, "Connection", "keep-alive");
  }
  if (framing != Framing::kNone && !response.content_type.empty()) {
    append_header(head, "Content-Type", response.content_type);
  }
  if (framing == Framing::kLength) {
    append_header(head, "Content-Length", std::to_string(response.body.size()));
  } else if (framing == Framing::kChunked) {
    append_header(head, "Transfer-Encoding", "chunked");
  }
  for (const auto& [name, value] : response.headers) append_header(head, name, value);
  head.append("\r\n");
  return head;
}

}  // namespace quire::http
