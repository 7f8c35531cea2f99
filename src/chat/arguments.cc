// Reading the arguments of calls.
#include <algorithm>

#include "chat/builtins.h"

namespace quire::chat_internal {

ArgReader::ArgReader(Runtime& runtime, std::string what, CallArgs& args)
    : runtime_(runtime), what_(std::move(what)), args_(args) {}

std::optional<Value> ArgReader::next(std::string_view name) {
  const auto keyword = std::find_if(args_.keywords.begin(), args_.keywords.end(),
                                    [&](const auto& entry) { return entry.first == name; });
  if (next_ < args_.positional.size()) {
    if (keyword != args_.keywords.end()) {
      runtime_.fail("the argument '" + std::string(name) + "' of " + what_ + " is given twice.");
    }
    return args_.positional[next_++];
  }
  if (keyword == args_.keywords.end()) return std::nullopt;
  Value value = std::move(keyword->second);
  args_.keywords.erase(keyword);
  return value;
}

Value ArgReader::required(std::string_view name) {
  if (auto value = next(name)) return *value;
  runtime_.fail(what_ + " lacks the argument '" + std::string(name) + "'.");
}

std::int64_t ArgReader::integer(std::string_view name, std::int64_t fallback) {
  const auto value = next(name);
  if (!value) return fallback;
  if (!value->is_integer()) fail_type(name, "an int", *value);
  return value->as_int();
}

std::string ArgReader::string(std::string_view name) {
  const Value value = required(name);
  if (!value.is_string()) fail_type(name, "a string", value);
  return value.text();
}

std::string ArgReader::string(std::string_view name, std::string_view fallback) {
  const auto value = next(name);
  if (!value) return std::string(fallback);
  if (!value->is_string()) fail_type(name, "a string", *value);
  return value->text();
}

MarkedText ArgReader::marked(std::string_view name, std::string_view fallback) {
  const auto value = next(name);
  if (!value) return MarkedText(std::string(fallback));
  if (!value->is_string()) fail_type(name, "a string", *value);
  return value->marked_text();
}

bool ArgReader::boolean(std::string_view name, bool fallback) {
  const auto value = next(name);
  return value ? truthy(*value) : fallback;
}

void ArgReader::done() {
  if (next_ < args_.positional.size()) runtime_.fail(what_ + " has too many arguments.");
  if (!args_.keywords.empty()) {
    runtime_.fail(what_ + " has no argument '" + args_.keywords[0].first + "'.");
  }
}

void ArgReader::fail_type(std::string_view name, std::string_view expected,
                          const Value& got) const {
  if (got.is_undefined()) runtime_.fail(got.undefined_reason() + ".");
  runtime_.fail("the argument '" + std::string(name) + "' of " + what_ + " must be " +
                std::string(expected) + ", not a " + std::string(type_name(got)) + ".");
}

}  // namespace quire::chat_internal
