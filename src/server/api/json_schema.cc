#include "server/api/json_schema.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "quire/error.h"
#include "server/api/json_schema_node.h"

namespace quire::server {
namespace {

constexpr std::string_view kReferencePrefix = "#/components/schemas/";
// Longer texts are not matched against patterns: the matcher's stack grows with them.
constexpr size_t kMaxPatternLength = 256;

constexpr std::array<std::pair<std::string_view, uint8_t>, 7> kTypes = {{
    {"null", kNullType},
    {"boolean", kBooleanType},
    {"integer", kIntegerType},
    {"number", kIntegerType | kNumberType},
    {"string", kStringType},
    {"array", kArrayType},
    {"object", kObjectType},
}};

constexpr std::array<std::string_view, 6> kAnnotations = {"title",    "description", "default",
                                                          "examples", "deprecated",  "format"};

}  // namespace

class JsonSchemas::Compiler {
 public:
  Compiler(Compiled& compiled, const Json& components)
      : compiled_(compiled), components_(components) {}

  void compile_all() {
    if (!components_.is_object()) throw Error("The schemas are expected to be an object.");
    // References may point ahead, so that every name has its node before any is filled in.
    for (const auto& [name, schema] : components_.items()) {
      compiled_.named[name] = &compiled_.nodes.emplace_back();
    }
    for (const auto& [name, schema] : components_.items()) {
      fill(const_cast<Node&>(*compiled_.named[name]), schema, name);
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& where, const std::string& what) {
    throw Error(fmt::format("The schema {}: {}.", where, what));
  }

  const Node* compile(const Json& schema, const std::string& where) {
    if (schema.is_object() && schema.size() == 1 && schema.contains("$ref")) {
      return reference(schema["$ref"], where);
    }
    Node& node = compiled_.nodes.emplace_back();
    fill(node, schema, where);
    return &node;
  }

  const Node* reference(const Json& target, const std::string& where) {
    const std::string text = target.is_string() ? target.get<std::string>() : "";
    const auto found = text.starts_with(kReferencePrefix)
                           ? compiled_.named.find(text.substr(kReferencePrefix.size()))
                           : compiled_.named.end();
    if (found == compiled_.named.end()) refuse(where, "$ref names no component");
    return found->second;
  }

  void fill(Node& node, const Json& schema, const std::string& where) {
    if (!schema.is_object()) refuse(where, "an object was expected");
    for (const auto& [keyword, value] : schema.items()) {
      const std::string place = where + "/" + keyword;
      if (!fill_bounds(node, keyword, value, place) && !fill_parts(node, keyword, value, place) &&
          std::find(kAnnotations.begin(), kAnnotations.end(), keyword) == kAnnotations.end()) {
        refuse(where, fmt::format("the keyword {} is not supported", keyword));
      }
    }
    if (node.pattern && node.max_length.value_or(kMaxPatternLength + 1) > kMaxPatternLength) {
      refuse(where, fmt::format("a pattern needs a maxLength of at most {}", kMaxPatternLength));
    }
  }

  bool fill_bounds(Node& node, const std::string& keyword, const Json& value,
                   const std::string& place) {
    if (keyword == "type") {
      fill_types(node, value, place);
    } else if (keyword == "const") {
      node.constant = value;
    } else if (keyword == "enum") {
      node.choices = list(value, place);
    } else if (keyword == "minimum") {
      node.minimum = number(value, place);
    } else if (keyword == "maximum") {
      node.maximum = number(value, place);
    } else if (keyword == "exclusiveMinimum") {
      node.exclusive_minimum = number(value, place);
    } else if (keyword == "exclusiveMaximum") {
      node.exclusive_maximum = number(value, place);
    } else if (keyword == "minLength") {
      node.min_length = count(value, place);
    } else if (keyword == "maxLength") {
      node.max_length = count(value, place);
    } else if (keyword == "pattern") {
      node.pattern_text = text(value, place);
      node.pattern = std::regex(node.pattern_text, std::regex::ECMAScript);
    } else if (keyword == "minItems") {
      node.min_items = count(value, place);
    } else if (keyword == "maxItems") {
      node.max_items = count(value, place);
    } else if (keyword == "minProperties") {
      node.min_properties = count(value, place);
    } else if (keyword == "maxProperties") {
      node.max_properties = count(value, place);
    } else {
      return false;
    }
    return true;
  }

  bool fill_parts(Node& node, const std::string& keyword, const Json& value,
                  const std::string& place) {
    if (keyword == "properties") {
      for (const auto& [name, schema] : value.items()) {
        node.properties[name] = compile(schema, place + "/" + name);
        node.property_names.push_back(name);
      }
    } else if (keyword == "required") {
      for (const Json& name : list(value, place)) node.required.push_back(text(name, place));
    } else if (keyword == "additionalProperties") {
      if (value.is_boolean()) {
        node.additional_allowed = value.get<bool>();
      } else {
        node.additional = compile(value, place);
      }
    } else if (keyword == "propertyNames") {
      node.name_schema = compile(value, place);
    } else if (keyword == "items") {
      node.items = compile(value, place);
    } else if (keyword == "allOf") {
      node.all_of = compile_list(value, place);
    } else if (keyword == "anyOf") {
      node.any_of = compile_list(value, place);
    } else if (keyword == "oneOf") {
      node.one_of = compile_list(value, place);
    } else if (keyword == "not") {
      node.negated = compile(value, place);
    } else if (keyword == "$ref") {
      node.all_of.push_back(reference(value, place));
    } else if (keyword == "x-error") {
      node.error = text(value, place);
    } else if (keyword == "x-param") {
      node.param = text(value, place);
    } else {
      return false;
    }
    return true;
  }

  void fill_types(Node& node, const Json& value, const std::string& place) {
    node.types = 0;
    for (const Json& name : value.is_array() ? list(value, place) : std::vector<Json>{value}) {
      const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) {
        return name.is_string() && type.first == name.get_ref<const std::string&>();
      });
      if (found == kTypes.end()) refuse(place, "no type has that name");
      node.types = static_cast<uint8_t>(node.types | found->second);
      node.type_names.emplace_back(found->first);
    }
  }

  std::vector<const Node*> compile_list(const Json& value, const std::string& place) {
    std::vector<const Node*> nodes;
    for (const Json& schema : list(value, place)) {
      nodes.push_back(compile(schema, place + "/" + std::to_string(nodes.size())));
    }
    return nodes;
  }

  static std::vector<Json> list(const Json& value, const std::string& place) {
    if (!value.is_array() || value.empty()) refuse(place, "a list was expected");
    return value.get<std::vector<Json>>();
  }
  static Json number(const Json& value, const std::string& place) {
    if (!value.is_number()) refuse(place, "a number was expected");
    return value;
  }
  static size_t count(const Json& value, const std::string& place) {
    if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<int64_t>() >= 0)) {
      refuse(place, "a number of at least 0 was expected");
    }
    return value.get<size_t>();
  }
  static std::string text(const Json& value, const std::string& place) {
    if (!value.is_string()) refuse(place, "a string was expected");
    return value.get<std::string>();
  }

  Compiled& compiled_;
  const Json& components_;
};

JsonSchemas::JsonSchemas(const Json& components) : compiled_(std::make_unique<Compiled>()) {
  Compiler(*compiled_, components).compile_all();
}

JsonSchemas::~JsonSchemas() = default;
JsonSchemas::JsonSchemas(JsonSchemas&&) noexcept = default;
JsonSchemas& JsonSchemas::operator=(JsonSchemas&&) noexcept = default;

std::optional<SchemaViolation> JsonSchemas::check(std::string_view name, const Json& value) const {
  return check_node(*compiled_->named.at(std::string(name)), value);
}

const std::vector<std::string>& JsonSchemas::property_names(std::string_view name) const {
  return compiled_->named.at(std::string(name))->property_names;
}

}  // namespace quire::server
