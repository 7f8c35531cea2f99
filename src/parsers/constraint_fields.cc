#include "parsers/constraint_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StructuredOutput::Kind;

constexpr std::string_view kResponseFormat = "response_format";
constexpr std::string_view kStructuredOutputs = "structured_outputs";

// vLLM's fields of structured_outputs.
constexpr std::array<std::string_view, 6> kMembers = {"json",    "regex",       "choice",
                                                      "grammar", "json_object", "structural_tag"};
// Fields beside messages that mean the same as one of them.
struct Alias {
  std::string_view field;
  std::string_view member;
};
constexpr std::array kAliases = {
    // What vLLM had before.
    Alias{"guided_json", "json"},
    Alias{"guided_regex", "regex"},
    Alias{"guided_choice", "choice"},
    Alias{"guided_grammar", "grammar"},
    Alias{"guided_json_object", "json_object"},
    Alias{"guided_structural_tag", "structural_tag"},
    // Those of llama.cpp and SGLang.
    Alias{"json_schema", "json"},
    Alias{"grammar", "grammar"},
    Alias{"regex", "regex"},
    Alias{"ebnf", "grammar"},
};
constexpr std::string_view kOneMember =
    "one of json, regex, choice, grammar, json_object and structural_tag";

[[noreturn]] void refuse(const std::string& field, std::string_view what) {
  throw ConstraintFieldError(field, fmt::format("{} {}.", field, what));
}

const Json* member(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& required(const Json& object, std::string_view name, const std::string& field) {
  const Json* value = member(object, name);
  if (value == nullptr) refuse(fmt::format("{}.{}", field, name), "is missing");
  return *value;
}

[[noreturn]] void refuse_kind(const std::string& field, const Json& value,
                              std::string_view wanted) {
  refuse(field, fmt::format("is {}, but must be {}", json_kind(value), wanted));
}

const Json& as_object(const Json& value, const std::string& field) {
  if (!value.is_object()) refuse_kind(field, value, "an object");
  return value;
}

std::string text_of(const Json& value, const std::string& field) {
  if (!value.is_string()) refuse_kind(field, value, "a string");
  return value.get<std::string>();
}

std::string as_written(const Json& value, const RawJson& raw) {
  return raw.is_known() ? std::string(raw.text()) : value.dump();
}

std::string schema_text(const Json& schema, const RawJson& raw, const std::string& field) {
  if (schema.is_string()) return schema.get<std::string>();
  if (!schema.is_object() && !schema.is_boolean()) {
    refuse_kind(field, schema, "a JSON schema: an object, or a string that holds one");
  }
  return as_written(schema, raw);
}

std::vector<std::string> texts_of(const Json& value, const std::string& field) {
  if (!value.is_array()) refuse_kind(field, value, "an array of strings");
  if (value.empty()) refuse(field, "is empty, but must have at least one string");
  std::vector<std::string> texts;
  for (const Json& item : value) {
    texts.push_back(text_of(item, fmt::format("{}[{}]", field, texts.size())));
  }
  return texts;
}

ConstraintField field_of(Kind kind, std::string text, std::string field) {
  ConstraintField result{.constraint = {.kind = kind, .text = std::move(text)},
                         .field = std::move(field)};
  return result;
}

// {"structures": [{"begin", "schema", "end"}], "triggers": [...]}
ConstraintField structural_tag(const Json& value, const RawJson& raw, const std::string& field) {
  as_object(value, field);
  if (member(value, "format") != nullptr) {
    refuse(field + ".format", "is not supported: give structures and triggers");
  }
  ConstraintField result = field_of(Kind::kTags, "", field);
  result.constraint.triggers = texts_of(required(value, "triggers", field), field + ".triggers");
  const Json& structures = required(value, "structures", field);
  if (!structures.is_array() || structures.empty()) {
    refuse_kind(field + ".structures", structures, "an array of at least one object");
  }
  const std::vector<RawJson> raw_structures = raw.find("structures").items();
  for (size_t i = 0; i < structures.size(); ++i) {
    const RawJson raw_structure = i < raw_structures.size() ? raw_structures[i] : RawJson();
    const std::string place = fmt::format("{}.structures[{}]", field, i);
    const Json& structure = as_object(structures[i], place);
    const Json* schema = member(structure, "schema");
    StructuralTag tag{
        .begin = text_of(required(structure, "begin", place), place + ".begin"),
        .json_schema = schema == nullptr
                           ? "{}"
                           : schema_text(*schema, raw_structure.find("schema"), place + ".schema"),
        .end = text_of(required(structure, "end", place), place + ".end")};
    const bool triggered = std::ranges::any_of(
        result.constraint.triggers,
        [&](const std::string& trigger) { return tag.begin.starts_with(trigger); });
    if (!triggered) refuse(place + ".begin", "begins with none of the triggers");
    result.constraint.tags.push_back(std::move(tag));
  }
  for (size_t i = 0; i < result.constraint.triggers.size(); ++i) {
    if (result.constraint.triggers[i].empty()) {
      refuse(fmt::format("{}.triggers[{}]", field, i), "is empty");
    }
  }
  return result;
}

// vLLM has it as a text that holds JSON, too.
ConstraintField written_structural_tag(const Json& value, const RawJson& raw,
                                       const std::string& field) {
  if (!value.is_string()) return structural_tag(value, raw, field);
  try {
    const auto& text = value.get_ref<const std::string&>();
    Json opened = parse_json_text(text, {});
    const JsonClearer clearer(opened);
    return structural_tag(opened, RawJson(text), field);
  } catch (const JsonError& error) {
    refuse(field, fmt::format("is {}", error.what()));
  }
}

ConstraintField member_constraint(std::string_view name, const Json& value, const RawJson& raw,
                                  std::string field) {
  if (name == "json") return field_of(Kind::kJsonSchema, schema_text(value, raw, field), field);
  if (name == "regex") return field_of(Kind::kRegex, text_of(value, field), field);
  if (name == "grammar") return field_of(Kind::kGrammar, text_of(value, field), field);
  if (name == "structural_tag") return written_structural_tag(value, raw, field);
  if (name == "choice") {
    ConstraintField result = field_of(Kind::kChoice, "", field);
    result.constraint.choices = texts_of(value, field);
    return result;
  }
  if (!value.is_boolean() || !value.get<bool>())
    refuse(field, "can only be true; else leave it out");
  return field_of(Kind::kJsonObject, "", std::move(field));
}

std::optional<ConstraintField> response_format(const Json& value, const RawJson& raw) {
  const std::string field(kResponseFormat);
  as_object(value, field);
  const std::string type = text_of(required(value, "type", field), field + ".type");
  if (type == "text") return std::nullopt;
  if (type == "json_object") {
    if (member(value, "schema") != nullptr) {
      refuse(field + ".schema", "goes with no json_object: give the type json_schema");
    }
    return field_of(Kind::kJsonObject, "", field);
  }
  if (type == "structural_tag") return structural_tag(value, raw, field);
  if (type != "json_schema") {
    refuse(field + ".type", fmt::format("is {}, but must be \"text\", \"json_object\", "
                                        "\"json_schema\" or \"structural_tag\"",
                                        Json(type).dump()));
  }
  const std::string place = field + ".json_schema";
  const Json& named = as_object(required(value, "json_schema", field), place);
  const std::string schema_field = place + ".schema";
  const Json& schema = required(named, "schema", place);
  if (!schema.is_object() && !schema.is_boolean()) {
    refuse_kind(schema_field, schema, "a JSON schema: an object");
  }
  return field_of(Kind::kJsonSchema, as_written(schema, raw.find("json_schema").find("schema")),
                  schema_field);
}

constexpr std::string_view kNoWhiteSpace = "disable_any_whitespace";

bool forbids_white_space(const Json& outputs) {
  const Json* value = member(outputs, kNoWhiteSpace);
  if (value == nullptr) return false;
  if (!value->is_boolean()) {
    refuse_kind(fmt::format("{}.{}", kStructuredOutputs, kNoWhiteSpace), *value, "true or false");
  }
  return value->get<bool>();
}

// Fields that change what an answer may be, and that are not acted on.
void refuse_others(const Json& outputs) {
  for (const auto& [name, value] : outputs.items()) {
    const bool known = std::ranges::find(kMembers, name) != kMembers.end();
    // There is one engine, so that there is none to fall back to.
    if (known || name == "disable_fallback" || name == kNoWhiteSpace || value.is_null()) continue;
    if (value.is_boolean() && !value.get<bool>()) continue;
    refuse(fmt::format("{}.{}", kStructuredOutputs, name), "is not supported; leave it out");
  }
}

std::vector<ConstraintField> structured_outputs(const Json& value, const RawJson& raw) {
  const std::string field(kStructuredOutputs);
  as_object(value, field);
  refuse_others(value);
  std::vector<ConstraintField> found;
  for (const std::string_view name : kMembers) {
    if (const Json* given = member(value, name)) {
      found.push_back(
          member_constraint(name, *given, raw.find(name), fmt::format("{}.{}", field, name)));
    }
  }
  if (found.empty()) refuse(field, fmt::format("is empty, but must have {}", kOneMember));
  const bool no_white_space = forbids_white_space(value);
  for (ConstraintField& each : found) each.constraint.disable_any_whitespace = no_white_space;
  return found;
}

// What clients send who always send the field.
bool asks_for_nothing(const Alias& alias, const Json& value) {
  if (alias.member == "json_object") return value.is_boolean() && !value.get<bool>();
  return alias.field == "grammar" && value.is_string() &&
         value.get_ref<const std::string&>().empty();
}

}  // namespace

std::optional<ConstraintField> constraint_of(const Json& object, const RawJson& raw) {
  std::vector<ConstraintField> found;
  if (const Json* value = member(object, kResponseFormat)) {
    if (auto constraint = response_format(*value, raw.find(kResponseFormat))) {
      found.push_back(std::move(*constraint));
    }
  }
  if (const Json* value = member(object, kStructuredOutputs)) {
    for (ConstraintField& each : structured_outputs(*value, raw.find(kStructuredOutputs))) {
      found.push_back(std::move(each));
    }
  }
  for (const Alias& each : kAliases) {
    const Json* value = member(object, each.field);
    if (value == nullptr || asks_for_nothing(each, *value)) continue;
    found.push_back(
        member_constraint(each.member, *value, raw.find(each.field), std::string(each.field)));
  }
  if (found.empty()) return std::nullopt;
  if (found.size() > 1) {
    throw ConstraintFieldError(
        found[1].field, fmt::format("{} and {} are both given, but an answer follows one of them.",
                                    found[0].field, found[1].field));
  }
  return std::move(found.front());
}

std::vector<std::string_view> constraint_field_names() {
  std::vector<std::string_view> names = {kResponseFormat, kStructuredOutputs};
  for (const Alias& each : kAliases) names.push_back(each.field);
  return names;
}

}  // namespace quire
