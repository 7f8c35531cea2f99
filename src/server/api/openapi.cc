#include "server/api/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/suggest.h"
#include "quire/version.h"
#include "server/api/api_error.h"
#include "server/api/api_schemas.h"

namespace quire::server {
namespace {

Json document_of(const ModelInfo& model, bool requires_key) {
  Json document;
  document["openapi"] = "3.1.0";
  document["info"]["title"] = "quire";
  document["info"]["version"] = std::string(version());
  document["info"]["description"] =
      fmt::format("The OpenAI-compatible API of a quire server. Model: {}.", model.id);
  document["info"]["license"] = Json{{"name", "Apache-2.0"}};
  document["servers"] = Json::array({{{"url", "/"}}});
  document["paths"] = api_paths(requires_key, model.loads_adapters);
  Json& components = document["components"];
  components["schemas"] = request_schemas(model);
  const Json responses = response_schemas();
  for (const auto& [name, schema] : responses.items()) components["schemas"][name] = schema;
  if (requires_key) {
    components["securitySchemes"]["bearer"] = Json{{"type", "http"}, {"scheme", "bearer"}};
  }
  return document;
}

}  // namespace

ApiDescription::ApiDescription(const ModelInfo& model, bool requires_key)
    : schemas_(request_schemas(model)), document_(document_of(model, requires_key).dump()) {}

void ApiDescription::check(std::string_view schema, const Json& body) const {
  std::optional<SchemaViolation> violation = schemas_.check(schema, body);
  if (!violation) return;
  std::optional<std::string> param;
  if (!violation->path.empty()) param = std::move(violation->path);
  throw invalid_request(violation->message, std::move(param), "invalid_value");
}

std::vector<std::string> ApiDescription::near_misses(std::string_view schema,
                                                     const Json& body) const {
  constexpr size_t kMaxLooked = 64;  // unknown fields of one request that are compared
  const std::vector<std::string>& names = schemas_.property_names(schema);
  std::vector<std::string> warnings;
  size_t looked = 0;
  for (const auto& [name, value] : body.items()) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (++looked > kMaxLooked) break;
    if (const auto meant = closest_name(name, names)) {
      warnings.push_back(
          fmt::format("the unknown field {} is ignored; did you mean {}?", name, *meant));
    }
  }
  return warnings;
}

}  // namespace quire::server
