#include "server/observe/trace_context.h"

#include <algorithm>
#include <utility>

#include "base/lower_case.h"

namespace quire::server {
namespace {

// "00-" trace "-" parent "-" flags.
constexpr size_t kTraceAt = 3;
constexpr size_t kTraceDigits = 32;
constexpr size_t kParentAt = kTraceAt + kTraceDigits + 1;
constexpr size_t kParentDigits = 16;
constexpr size_t kFlagsAt = kParentAt + kParentDigits + 1;
constexpr size_t kLength = kFlagsAt + 2;
constexpr size_t kMaxState = 512;

bool is_lower_hex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view digits) {
  return digits.find_first_not_of('0') == std::string_view::npos;
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view value) {
  if (value.size() < kLength) return std::nullopt;
  const std::string_view version = value.substr(0, 2);
  const std::string_view trace = value.substr(kTraceAt, kTraceDigits);
  const std::string_view parent = value.substr(kParentAt, kParentDigits);
  const std::string_view flags = value.substr(kFlagsAt, 2);
  for (const std::string_view digits : {version, trace, parent, flags}) {
    if (!is_lower_hex(digits)) return std::nullopt;
  }
  for (const size_t dash : {kTraceAt - 1, kParentAt - 1, kFlagsAt - 1}) {
    if (value[dash] != '-') return std::nullopt;
  }
  if (version == "ff" || is_zero(trace) || is_zero(parent)) return std::nullopt;
  // Later versions may have more behind another dash.
  if (value.size() > kLength && (version == "00" || value[kLength] != '-')) return std::nullopt;
  const bool sampled = (flags[1] >= 'a' ? flags[1] - 'a' + 10 : flags[1] - '0') % 2 == 1;
  return TraceContext{
      .trace_id = std::string(trace), .parent_id = std::string(parent), .sampled = sampled};
}

std::optional<TraceContext> trace_context_of(const http::Request& request) {
  std::optional<std::string_view> parent;
  std::string state;
  for (const auto& [name, value] : request.headers) {
    if (same_in_lower_case(name, "traceparent")) {
      if (parent) return std::nullopt;
      parent = value;
    } else if (same_in_lower_case(name, "tracestate") && state.size() <= kMaxState) {
      if (!state.empty()) state += ',';  // several are one list
      state += value;
    }
  }
  auto context = parent ? parse_traceparent(*parent) : std::nullopt;
  if (context && state.size() <= kMaxState && is_printable(state)) {
    context->state = std::move(state);
  }
  return context;
}

}  // namespace quire::server
