#include "server/api/model_info.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/api/api_error.h"
#include "server/api/json_body.h"

namespace quire::server {
namespace {

Json model_object(const ModelInfo& model, std::string_view name) {
  Json object;
  object["id"] = name;
  object["object"] = "model";
  object["created"] = model.created;
  object["owned_by"] = "quire";
  object["root"] = model.root.empty() ? model.id : model.root;
  object["parent"] = nullptr;
  object["max_model_len"] = model.max_model_len;
  object["vocab_size"] = model.vocab_size;  // for clients that send token ids
  return object;
}

}  // namespace

bool serves(const ModelInfo& model, std::string_view name) {
  return name == model.id ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

std::string models_body(const ModelInfo& model) {
  Json body;
  body["object"] = "list";
  Json& list = body["data"] = Json::array({model_object(model, model.id)});
  for (const std::string& alias : model.aliases) list.push_back(model_object(model, alias));
  return body.dump();
}

std::string model_body(const ModelInfo& model, std::string_view name) {
  if (!serves(model, name)) throw model_not_found(name);
  return model_object(model, name).dump();
}

}  // namespace quire::server
