#include "loadgen/served_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "loadgen/stream_chunk.h"
#include "quire/error.h"

namespace quire::loadgen {
namespace {

using Json = nlohmann::json;

std::optional<int64_t> positive_count(const Json& object, const char* key) {
  const auto value = object.find(key);
  if (value == object.end() || !value->is_number_integer() || value->get<int64_t>() < 1) {
    return std::nullopt;
  }
  return value->get<int64_t>();
}

std::optional<int64_t> vocab_size_of(const Json& model) {
  if (const auto size = positive_count(model, "vocab_size")) return size;
  const auto meta = model.find("meta");
  if (meta == model.end() || !meta->is_object()) return std::nullopt;
  return positive_count(*meta, "n_vocab");
}

std::string id_of(const Json& model) {
  if (!model.is_object()) return {};
  const auto id = model.find("id");
  return id != model.end() && id->is_string() ? id->get<std::string>() : std::string();
}

HttpResponse complete_one_token(const HttpOptions& options, const std::string& model,
                                const Json& prompt) {
  const Json body = {{"model", model}, {"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}};
  return fetch(options, "/v1/completions",
               body.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

ServedModel find_served_model(const HttpOptions& options, const std::string& name) {
  const HttpResponse response = fetch(options, "/v1/models");
  const Json list = Json::parse(response.body, nullptr, /*allow_exceptions=*/false);
  if (response.status == 200 && list.is_object() && list.contains("data") &&
      list["data"].is_array()) {
    for (const Json& model : list["data"]) {
      const std::string id = id_of(model);
      if (!id.empty() && (name.empty() || id == name)) {
        return {.id = id, .vocab_size = vocab_size_of(model)};
      }
    }
  }
  if (response.status == 401) {
    throw Error(fmt::format("{} wants a key (--api-key, or OPENAI_API_KEY in the environment): {}",
                            options.base_url, error_message_of(response.body)));
  }
  if (name.empty()) {
    throw Error(
        fmt::format("{}/v1/models names no model (HTTP {}: {}): --model says which one to ask for",
                    options.base_url, response.status, error_message_of(response.body)));
  }
  return {.id = name, .vocab_size = std::nullopt};
}

bool takes_token_ids(const HttpOptions& options, const std::string& model) {
  const HttpResponse with_ids = complete_one_token(options, model, Json{0, 0, 0, 0});
  if (with_ids.status == 200) return true;
  const HttpResponse with_text = complete_one_token(options, model, "a");
  if (with_text.status == 200) return false;
  throw Error(fmt::format("{}/v1/completions refuses a request for one token: HTTP {}: {}",
                          options.base_url, with_text.status, error_message_of(with_text.body)));
}

}  // namespace quire::loadgen
