#pragma once
// Checks JSON values against JSON Schema 2020-12, as far as the API's own schemas need it.
//
// Supported: type (one or a list), enum, const, minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, minLength, maxLength (in characters), pattern (with a maxLength of at most
// 256), minItems, maxItems, items, properties, required, additionalProperties, minProperties,
// maxProperties, propertyNames, allOf, anyOf, oneOf, not, $ref to "#/components/schemas/NAME".
// Annotations (title, description, default, examples, deprecated, format) are passed over. As in
// 2020-12, a number without a fraction is an integer: 2.0 is.
//
// Two annotations of ours make messages clear: "x-error" is the message where its schema refuses a
// value, and "x-param" the parameter to name.
//
// Thread safety: immutable once made; check() is const.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/json_body.h"

namespace quire::server {

struct SchemaViolation {
  std::string path;     // "messages[0].content"; empty for the value itself
  std::string message;  // a sentence: what is there, and what was expected
};

class JsonSchemas {
 public:
  // `components` is an object of named schemas. Throws Error naming a schema that uses a keyword
  // that is not supported, or that is malformed.
  explicit JsonSchemas(const Json& components);
  ~JsonSchemas();
  JsonSchemas(JsonSchemas&&) noexcept;
  JsonSchemas& operator=(JsonSchemas&&) noexcept;

  // The first violation of the schema `name`, which must exist, by `value`.
  std::optional<SchemaViolation> check(std::string_view name, const Json& value) const;

  // The properties that the schema `name` itself lists.
  const std::vector<std::string>& property_names(std::string_view name) const;

  struct Node;

 private:
  class Compiler;
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace quire::server
