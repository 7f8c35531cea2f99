#include "server/api/model_info.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_writer.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

void write_sizes(JsonWriter& json, const ModelInfo& model) {
  json.member("max_model_len", model.max_model_len);
  json.member("vocab_size", model.vocab_size);  // for clients that send token ids
  json.end_object();
}

void write_model(JsonWriter& json, const ModelInfo& model, std::string_view name) {
  json.begin_object().member("id", name).member("object", "model");
  json.member("created", model.created).member("owned_by", "quire");
  json.member("root", model.root.empty() ? model.id : model.root).null_member("parent");
  write_sizes(json, model);
}

void write_adapter(JsonWriter& json, const ModelInfo& model, const ServedAdapter& adapter) {
  json.begin_object().member("id", adapter.name).member("object", "model");
  json.member("created", adapter.created).member("owned_by", "quire");
  json.member("root", adapter.root).member("parent", adapter.parent);
  write_sizes(json, model);
}

}  // namespace

bool is_base_name(const ModelInfo& model, std::string_view name) {
  return name == model.id || std::ranges::find(model.aliases, name) != model.aliases.end();
}

std::string name_conflict(const ModelInfo& model, const std::string& name) {
  if (is_base_name(model, name)) {
    return fmt::format("is {}, which is the model itself; expected another name.", name);
  }
  for (size_t colon = name.find(':'); colon != std::string::npos;
       colon = name.find(':', colon + 1)) {
    if (!is_base_name(model, name.substr(0, colon))) continue;
    return fmt::format(
        "is {}, which is what requests may call the adapter {} of {}; expected another name.", name,
        name.substr(colon + 1), name.substr(0, colon));
  }
  return "";
}

std::optional<NamedModel> find_model(const ModelInfo& model, std::string_view name) {
  if (is_base_name(model, name)) return NamedModel{model.id, ""};
  if (model.adapters == nullptr) return std::nullopt;
  if (model.adapters->contains(name)) return NamedModel{std::string(name), std::string(name)};
  // Names of both kinds may have colons.
  for (size_t colon = name.find(':'); colon != std::string_view::npos;
       colon = name.find(':', colon + 1)) {
    const std::string adapter(name.substr(colon + 1));
    if (is_base_name(model, name.substr(0, colon)) && model.adapters->contains(adapter)) {
      return NamedModel{adapter, adapter};
    }
  }
  return std::nullopt;
}

std::string models_body(const ModelInfo& model) {
  std::string body;
  JsonWriter json(body);
  json.begin_object().member("object", "list").key("data").begin_array();
  write_model(json, model, model.id);
  for (const std::string& alias : model.aliases) write_model(json, model, alias);
  if (model.adapters != nullptr) {
    for (const ServedAdapter& adapter : model.adapters->all()) write_adapter(json, model, adapter);
  }
  json.end_array().end_object();
  return body;
}

std::string model_body(const ModelInfo& model, std::string_view name) {
  const std::optional<NamedModel> named = find_model(model, name);
  if (!named) throw model_not_found(name);
  std::string body;
  JsonWriter json(body);
  if (named->adapter.empty()) {
    write_model(json, model, name);
    return body;
  }
  // It may have been unloaded just now.
  const std::optional<ServedAdapter> adapter = model.adapters->find(named->adapter);
  if (!adapter) throw model_not_found(name);
  write_adapter(json, model, *adapter);
  return body;
}

}  // namespace quire::server
