#include "loader/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "quire/error.h"

namespace quire::loader_internal {
namespace {

using json = nlohmann::ordered_json;

std::string range_text(double min, double max) {
  return fmt::format("a number from {:g} to {:g}", min, max);
}

}  // namespace

std::string shown(const json& value) {
  constexpr size_t kMaxLength = 60;
  if (value.is_object() || value.is_array()) {
    if (value.size() > 8) {
      return fmt::format("{} of {} items", value.is_object() ? "an object" : "a list",
                         value.size());
    }
  }
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return text;
}

std::string shown(const std::string& text) {
  return shown(json(text));
}

const json* JsonFields::find(const char* field) const {
  const auto it = object_.find(field);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::mentions(const char* field) const {
  return object_.contains(field);
}

std::vector<std::string> JsonFields::names() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) names.push_back(name);
  return names;
}

void JsonFields::fail(const char* field, std::string_view what) const {
  throw Error(fmt::format("{}: the field {} {}.", file_, name_of(field), what));
}

void JsonFields::fail_value(const char* field, std::string_view expected) const {
  fail(field, fmt::format("is {}; expected {}", shown(object_.at(field)), expected));
}

int64_t JsonFields::checked_integer(const json& value, const char* field, int64_t min,
                                    int64_t max) const {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    fail(field, fmt::format("is {}; expected an integer from {} to {}", shown(value), min, max));
  }
  return value.get<int64_t>();
}

std::optional<int64_t> JsonFields::integer(const char* field, int64_t min, int64_t max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  return checked_integer(*value, field, min, max);
}

double JsonFields::checked_number(const json& value, const char* field, double min,
                                  double max) const {
  const double x = value.is_number() ? value.get<double>() : std::nan("");
  if (!(x >= min && x <= max)) {
    fail(field, fmt::format("{} {}; expected {}", find(field)->is_array() ? "holds" : "is",
                            shown(value), range_text(min, max)));
  }
  return x;
}

std::optional<double> JsonFields::number(const char* field, double min, double max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  return checked_number(*value, field, min, max);
}

std::optional<std::vector<double>> JsonFields::numbers(const char* field, double min,
                                                       double max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail_value(field, "a list of numbers");
  std::vector<double> result;
  for (const json& item : *value) result.push_back(checked_number(item, field, min, max));
  return result;
}

std::optional<bool> JsonFields::boolean(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail_value(field, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail_value(field, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> JsonFields::strings(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) fail_value(field, "a list of strings");
  std::vector<std::string> result;
  for (const json& item : *value) {
    if (!item.is_string()) fail_value(field, "a list of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::optional<std::vector<int64_t>> JsonFields::integers(const char* field, int64_t min,
                                                         int64_t max) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return std::vector{checked_integer(*value, field, min, max)};
  std::vector<int64_t> result;
  for (const json& item : *value) result.push_back(checked_integer(item, field, min, max));
  return result;
}

std::optional<JsonFields> JsonFields::object(const char* field) const {
  const json* value = find(field);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail_value(field, "an object");
  return JsonFields(*value, file_, name_of(field) + ".");
}

int64_t JsonFields::required_integer(const char* field, int64_t min, int64_t max) const {
  const std::optional<int64_t> value = integer(field, min, max);
  if (!value) {
    fail(field, fmt::format("is missing; expected an integer from {} to {}", min, max));
  }
  return *value;
}

}  // namespace quire::loader_internal
