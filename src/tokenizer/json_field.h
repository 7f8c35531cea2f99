#pragma once
// A value inside a small JSON document together with the path that leads to it, so that every
// complaint names the field. Errors: quire::Error. The document must outlive its fields.
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::tokenizer_internal {

class JsonField {
 public:
  // `path` names the root: "tokenizer.json: decoder".
  JsonField(const nlohmann::json& value, std::string path);

  const std::string& path() const { return path_; }
  bool is_object() const;

  // A member of this object; nullopt when it is missing or null.
  std::optional<JsonField> find(std::string_view name) const;
  // The same, but it has to be there.
  JsonField at(std::string_view name) const;

  const std::string& as_string() const;
  bool as_bool() const;
  std::size_t as_size(std::size_t max) const;
  std::vector<JsonField> items() const;

  // The member `type`, which says what kind of object this is.
  const std::string& type() const;
  bool bool_or(std::string_view name, bool fallback) const;
  // A string of exactly one character, as that code point.
  char32_t as_code_point() const;

  // Throws: the path, then `what`.
  [[noreturn]] void fail(std::string_view what) const;
  // Throws that the value `value` of this field is none of `supported` ("A, B and C").
  [[noreturn]] void unsupported(std::string_view value, std::string_view supported) const;

 private:
  const nlohmann::json* value_;
  std::string path_;
};

// Parses a small document whose nesting is known to be bounded; `name` is for the message.
nlohmann::json parse_small_json(std::string_view text, std::string_view name);

}  // namespace quire::tokenizer_internal
