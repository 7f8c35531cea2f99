#include "server/api/json_body.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "server/api/api_error.h"

namespace quire::server {

Json parse_body(std::string_view body) {
  try {
    return parse_json_text(
        body,
        {.max_depth = kMaxBodyDepth, .max_values = kMaxBodyValues, .allow_repeated_keys = true});
  } catch (const JsonError& error) {
    const std::string place = error.offset() ? fmt::format(" (byte {})", *error.offset()) : "";
    throw invalid_request(fmt::format("The request body: {}{}.", error.what(), place), {},
                          "invalid_json");
  }
}

bool is_string(const Json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

Json parse_object_body(std::string_view body) {
  Json value = parse_body(body);
  if (!value.is_object()) {
    const JsonClearer clearer(value);
    throw invalid_request(fmt::format("The request body is a JSON {}; a JSON object was expected.",
                                      value.type_name()),
                          {}, "invalid_type");
  }
  return value;
}

}  // namespace quire::server
