#include "server/answer/forced_calls.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/json_writer.h"

namespace quire::server {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string json_text_of(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out += '"';
}

}  // namespace

void ForcedCalls::add(const ParsedDelta& parsed) {
  has_text_ |= parsed.content.find_first_not_of(kWhiteSpace) != std::string::npos;
  for (const ToolCallDelta& call : parsed.tool_calls) {
    if (!call.id.empty()) {
      // A call that another follows while it is not whole leaves the answer broken for good.
      if (depth_ > 0) has_text_ = true;
      ++num_calls_;
      // The opening bracket may come with a later piece.
      depth_ = 1;
      in_string_ = escaped_ = false;
      is_open_ = false;
    }
    read_arguments(call.arguments);
  }
}

void ForcedCalls::read_arguments(const std::string& piece) {
  for (const char c : piece) {
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      continue;
    }
    if (c == '"') in_string_ = true;
    // The first bracket is counted already.
    if ((c == '{' || c == '[') && std::exchange(is_open_, true)) ++depth_;
    if (c == '}' || c == ']') --depth_;
  }
}

std::optional<ApiError> cut_call_error(const ForcedCalls& calls, const CompletionOutput& end) {
  const FinishReason reason = *end.finish_reason;
  const bool own_end = end.stop_reason.empty() && reason != FinishReason::kAbort;
  if (own_end || calls.whole()) return std::nullopt;
  if (reason == FinishReason::kAbort) {
    return service_unavailable(
        "The answer was ended before the call that tool_choice forces was whole.", 1);
  }
  if (reason == FinishReason::kLength) {
    return ApiError(408, "invalid_request_error",
                    "The timeout passed before the call that tool_choice forces was whole.",
                    "timeout", "timeout");
  }
  return invalid_request(
      fmt::format(
          "{} cut the call that tool_choice forces; expected a stop that calls do not have.",
          json_text_of(end.stop_reason)),
      "stop", "invalid_value");
}

}  // namespace quire::server
