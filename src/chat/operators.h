#pragma once
// Arithmetic, item access and slices with Python's results; ints are 64 bits and overflow is an
// Error.
#include <string_view>

#include "chat/value.h"

namespace quire::chat_internal {

// `op` is one of + - * / // % **.
Value binary(Interpreter& interpreter, std::string_view op, const Value& left, const Value& right);
Value negate(Runtime& runtime, const Value& value);
Value positive(Runtime& runtime, const Value& value);

// a in b.
bool contains(Runtime& runtime, const Value& container, const Value& item);

// object[key], or nullopt where Python would raise TypeError or LookupError.
std::optional<Value> get_item(Runtime& runtime, const Value& object, const Value& key);

}  // namespace quire::chat_internal
