#pragma once
// The form of a log line. Used by AccessLog; access_log.h has format_access_line().
//
// Thread safety: pure functions.
#include <chrono>
#include <string>
#include <string_view>

#include "server/observe/access_log.h"

namespace quire::server {

// One line of the server's own, without its line end.
std::string format_log_line(LogLevel level, std::string_view message, std::string_view request_id,
                            std::chrono::system_clock::time_point time, LogFormat format,
                            bool color);

}  // namespace quire::server
