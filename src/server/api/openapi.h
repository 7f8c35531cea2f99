#pragma once
// What the API accepts and answers: the schemas that requests are checked against, and the OpenAPI
// document made of them.
//
// Thread safety: immutable once made.
#include <string>
#include <string_view>
#include <vector>

#include "server/api/json_schema.h"
#include "server/api/model_info.h"

namespace quire::server {

class ApiDescription {
 public:
  // The model gives the bounds in it (vocabulary, length). With `requires_key` the document says
  // that calls need a bearer token.
  explicit ApiDescription(const ModelInfo& model, bool requires_key = false);

  // Throws ApiError 400, with the path of the parameter, if `body` violates the component `schema`
  // ("ChatCompletionRequest", ...).
  void check(std::string_view schema, const Json& body) const;

  // Warnings: fields of `body` that `schema` does not know but whose names are nearly those of
  // known fields.
  std::vector<std::string> near_misses(std::string_view schema, const Json& body) const;

  // The body of GET /openapi.json.
  const std::string& document() const { return document_; }

  const JsonSchemas& schemas() const { return schemas_; }

 private:
  JsonSchemas schemas_;
  std::string document_;
};

}  // namespace quire::server
