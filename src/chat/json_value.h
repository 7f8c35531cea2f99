#pragma once
// JSON from outside as values of a template.
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "chat/value.h"

namespace quire::chat_internal {

enum class Origin {
  kTemplate,  // its strings count as the template's own
  kChat,      // its strings are marked, keys too
};

// `where` names the JSON in messages, e.g. "messages[2].content". Integers beyond 63 bits become
// floats. Throws Error for invalid UTF-8 and nesting over the limit.
//
// In a list of messages, kChat leaves a role that is one plain word unmarked: templates put it
// between the parts of special tokens ("<|" + role + "|>").
Value json_to_value(Runtime& runtime, const nlohmann::ordered_json& json, std::string_view where,
                    Origin origin = Origin::kTemplate);

}  // namespace quire::chat_internal
