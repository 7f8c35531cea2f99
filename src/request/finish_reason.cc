#include "base/check.h"
#include "quire/request_output.h"

namespace quire {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
  }
  check(false, "a finish reason has a name");
  return {};
}

}  // namespace quire
