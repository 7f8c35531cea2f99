#include "tokenizer/json_field.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "quire/error.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {

JsonField::JsonField(const nlohmann::json& value, std::string path)
    : value_(&value), path_(std::move(path)) {}

void JsonField::fail(std::string_view what) const {
  throw Error(fmt::format("{} {}.", path_, what));
}

void JsonField::unsupported(std::string_view value, std::string_view supported) const {
  fail(fmt::format("is \"{}\", which is not supported; quire supports {}", value, supported));
}

bool JsonField::is_object() const {
  return value_->is_object();
}

std::optional<JsonField> JsonField::find(std::string_view name) const {
  if (!value_->is_object()) fail("must be a JSON object");
  const auto member = value_->find(name);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonField(*member, fmt::format("{}.{}", path_, name));
}

JsonField JsonField::at(std::string_view name) const {
  const auto member = find(name);
  if (!member) fail(fmt::format("has no field \"{}\"", name));
  return *member;
}

const std::string& JsonField::as_string() const {
  if (!value_->is_string()) fail("must be a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::as_bool() const {
  if (!value_->is_boolean()) fail("must be true or false");
  return value_->get<bool>();
}

std::size_t JsonField::as_size(std::size_t max) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= max
                        : value_->is_number_integer() && value_->get<std::int64_t>() >= 0 &&
                              value_->get<std::uint64_t>() <= max;
  if (!fits) fail(fmt::format("must be an integer from 0 to {}", max));
  return value_->get<std::size_t>();
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) fail("must be a JSON array");
  std::vector<JsonField> out;
  out.reserve(value_->size());
  for (const auto& item : *value_) {
    out.emplace_back(item, fmt::format("{}[{}]", path_, out.size()));
  }
  return out;
}

const std::string& JsonField::type() const {
  if (!value_->is_object()) fail("must be a JSON object");
  const auto member = value_->find("type");
  if (member == value_->end() || !member->is_string()) fail("has no string field \"type\"");
  return member->get_ref<const std::string&>();
}

bool JsonField::bool_or(std::string_view name, bool fallback) const {
  const auto member = find(name);
  return member ? member->as_bool() : fallback;
}

char32_t JsonField::as_code_point() const {
  const std::string& text = as_string();
  if (text.empty() || decode_at(text, 0).size != text.size()) fail("must be exactly one character");
  return decode_at(text, 0).value;
}

nlohmann::json parse_small_json(std::string_view text, std::string_view name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("{} is malformed JSON: {}.", name, error.what()));
  }
}

}  // namespace quire::tokenizer_internal
