#pragma once
// JSON from outside as values of a template.
#include <nlohmann/json.hpp>
#include <string_view>

#include "chat/value.h"

namespace quire::chat_internal {

// `where` names the JSON in messages, e.g. "messages[2].content". Throws Error for invalid UTF-8,
// integers beyond 64 bits, and nesting over the limit.
Value json_to_value(Runtime& runtime, const nlohmann::ordered_json& json, std::string_view where);

}  // namespace quire::chat_internal
