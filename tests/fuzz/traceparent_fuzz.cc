// The header traceparent: what is taken from it is what W3C Trace Context calls valid, and says the
// same again when it is written down.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/observe/trace_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto context = quire::server::parse_traceparent(text);
  if (!context) return 0;
  const auto is_id = [](const std::string& id, size_t length) {
    return id.size() == length && id.find_first_not_of("0123456789abcdef") == std::string::npos &&
           id.find_first_not_of('0') != std::string::npos;
  };
  if (!is_id(context->trace_id, 32) || !is_id(context->parent_id, 16)) std::abort();
  const auto again = quire::server::parse_traceparent(
      "00-" + context->trace_id + "-" + context->parent_id + (context->sampled ? "-01" : "-00"));
  if (!again || again->trace_id != context->trace_id || again->parent_id != context->parent_id ||
      again->sampled != context->sampled) {
    std::abort();
  }
  return 0;
}
