#pragma once
// The filters by theme; find_filter() looks through all of them.
#include <string_view>

#include "chat/builtins.h"

namespace quire::chat_internal {

Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
Filter find_value_filter(std::string_view name);

// Follows the path of an attribute, e.g. "function.name" or "0", from `item`. `fallback` replaces
// what is undefined on the way.
Value follow_path(Interpreter& interpreter, const Value& item, const Value& path,
                  const std::optional<Value>& fallback = std::nullopt);

}  // namespace quire::chat_internal
