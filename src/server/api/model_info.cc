#include "server/api/model_info.h"

#include <algorithm>

#include "base/json_writer.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

void write_model(JsonWriter& json, const ModelInfo& model, std::string_view name) {
  json.begin_object().member("id", name).member("object", "model");
  json.member("created", model.created).member("owned_by", "quire");
  json.member("root", model.root.empty() ? model.id : model.root).null_member("parent");
  json.member("max_model_len", model.max_model_len);
  json.member("vocab_size", model.vocab_size);  // for clients that send token ids
  json.end_object();
}

}  // namespace

bool serves(const ModelInfo& model, std::string_view name) {
  return name == model.id ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

std::string models_body(const ModelInfo& model) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().member("object", "list").key("data").begin_array();
  write_model(json, model, model.id);
  for (const std::string& alias : model.aliases) write_model(json, model, alias);
  json.end_array().end_object();
  return body;
}

std::string model_body(const ModelInfo& model, std::string_view name) {
  if (!serves(model, name)) throw model_not_found(name);
  std::string body;
  JsonWriter json(body);
  write_model(json, model, name);
  return body;
}

}  // namespace quire::server
