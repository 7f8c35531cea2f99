#include "server/api/checkable_schema.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace quire::server {
namespace {

constexpr std::array<std::string_view, 8> kPassedOver = {
    "title", "description", "default", "examples", "deprecated", "$schema", "$id", "$defs"};

bool is_type(const Json& json) {
  constexpr std::array<std::string_view, 7> kNames = {"null",   "boolean", "integer", "number",
                                                      "string", "array",   "object"};
  const auto known = [&](const Json& name) {
    return name.is_string() &&
           std::ranges::count(kNames, std::string_view(name.get_ref<const std::string&>())) > 0;
  };
  return json.is_array() ? !json.empty() && std::ranges::all_of(json, known) : known(json);
}

bool is_count(const Json& json) {
  return json.is_number_unsigned();
}

bool is_list(const Json& json) {
  return json.is_array() && !json.empty();
}

bool is_list_of_strings(const Json& json) {
  return is_list(json) &&
         std::ranges::all_of(json, [](const Json& item) { return item.is_string(); });
}

// Keywords whose values are no schemas, and what those must look like.
using Accepts = bool (*)(const Json&);
constexpr std::array<std::pair<std::string_view, Accepts>, 14> kPlainKeywords = {{
    {"type", is_type},
    {"enum", is_list},
    {"const", [](const Json&) { return true; }},
    {"required", is_list_of_strings},
    {"minimum", [](const Json& json) { return json.is_number(); }},
    {"maximum", [](const Json& json) { return json.is_number(); }},
    {"exclusiveMinimum", [](const Json& json) { return json.is_number(); }},
    {"exclusiveMaximum", [](const Json& json) { return json.is_number(); }},
    {"minLength", is_count},
    {"maxLength", is_count},
    {"minItems", is_count},
    {"maxItems", is_count},
    {"minProperties", is_count},
    {"maxProperties", is_count},
}};

// Copies what can be checked, and remembers whether anything was left out.
class Copier {
 public:
  bool exact() const { return exact_; }

  Json copy(const Json& schema) {
    if (schema.is_boolean()) {
      return schema.get<bool>() ? Json::object() : Json{{"not", Json::object()}};
    }
    Json out = Json::object();
    if (!schema.is_object()) {
      exact_ = false;
      return out;
    }
    for (const auto& [keyword, value] : schema.items()) {
      if (!copy_plain(out, keyword, value) && !copy_parts(out, keyword, value) &&
          std::ranges::count(kPassedOver, std::string_view(keyword)) == 0) {
        exact_ = false;
      }
    }
    // What a pattern allows is no other property.
    if (schema.contains("patternProperties")) out.erase("additionalProperties");
    return out;
  }

 private:
  static bool copy_plain(Json& out, const std::string& keyword, const Json& value) {
    const auto found = std::ranges::find_if(
        kPlainKeywords, [&](const auto& plain) { return plain.first == keyword; });
    if (found == kPlainKeywords.end() || !found->second(value)) {
      // An empty list of names asks for nothing.
      return keyword == "required" && value.is_array() && value.empty();
    }
    out[keyword] = value;
    return true;
  }

  bool copy_parts(Json& out, const std::string& keyword, const Json& value) {
    const bool is_schema = value.is_object() || value.is_boolean();
    if (keyword == "properties" && value.is_object()) {
      Json& copies = out[keyword] = Json::object();
      for (const auto& [name, part] : value.items()) copies[name] = copy(part);
    } else if ((keyword == "items" || keyword == "propertyNames") && is_schema) {
      out[keyword] = copy(value);
    } else if (keyword == "additionalProperties" && is_schema) {
      out[keyword] = value.is_boolean() ? value : copy(value);
    } else if (keyword == "allOf" && is_list(value)) {
      for (Json& part : copy_list(value)) out[keyword].push_back(std::move(part));
    } else if (keyword == "anyOf" && is_list(value)) {
      out[keyword] = copy_list(value);
    } else if (keyword == "oneOf" && is_list(value)) {
      // Branches that lost something may match together although the client's do not.
      Copier branches;
      Json copies = branches.copy_list(value);
      exact_ = exact_ && branches.exact();
      if (branches.exact()) {
        out[keyword] = std::move(copies);
      } else {
        out["allOf"].push_back({{"anyOf", std::move(copies)}});
      }
    } else if (keyword == "not" && is_schema) {
      Copier inner;
      Json negated = inner.copy(value);
      if (inner.exact()) out[keyword] = std::move(negated);
      return inner.exact();
    } else {
      return false;
    }
    return true;
  }

  Json copy_list(const Json& list) {
    Json copies = Json::array();
    for (const Json& part : list) copies.push_back(copy(part));
    return copies;
  }

  bool exact_ = true;
};

}  // namespace

Json checkable_schema(const Json& schema) {
  return Copier().copy(schema);
}

std::optional<SchemaViolation> check_against(const Json& schema, const Json& value,
                                             std::string_view name) {
  const std::string component(name);
  // Held in an object, so that paths begin with its name.
  const Json holder = {{"properties", {{component, checkable_schema(schema)}}}};
  const JsonSchemas schemas(Json{{component, holder}});
  return schemas.check(component, Json{{component, value}});
}

}  // namespace quire::server
