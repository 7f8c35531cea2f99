#pragma once
// What requests and responses need to know of the model that a server serves, and of its adapters.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/sampling_params.h"
#include "server/api/adapter_list.h"

namespace quire::server {

struct ModelInfo {
  std::string id{};                    // as clients name it
  std::vector<std::string> aliases{};  // other names for it
  std::string root{};                  // the folder or hub name that it was loaded from
  int64_t max_model_len = 0;           // tokens of prompt and output together
  int64_t vocab_size = 0;
  // From generation_config.json; max_tokens is not taken from it, since clients expect the API's
  // own: 16 for completions, as many as fit for chats.
  SamplingParams defaults{};
  bool has_tokenizer = false;
  bool has_chat_template = false;
  int64_t created = 0;  // Unix time in seconds
  // That requests can name; it changes while the server runs. Null: there never are any.
  std::shared_ptr<AdapterList> adapters{};
  bool loads_adapters = false;  // clients may load and unload them
};

// What a client means by the name of a model.
struct NamedModel {
  std::string id;       // as answers name it: the model's own name, or the adapter's
  std::string adapter;  // empty: none
};
// Finds the model by any of its names, an adapter by its own or as "MODEL:ADAPTER"; nothing for
// other names.
std::optional<NamedModel> find_model(const ModelInfo& model, std::string_view name);
// Whether it is a name of the model itself, not of an adapter.
bool is_base_name(const ModelInfo& model, std::string_view name);

// Why no adapter can have this name beside the model's, as the end of a sentence that begins with
// what names it; empty where one can.
std::string name_conflict(const ModelInfo& model, const std::string& name);

// The bodies of GET /v1/models and of GET /v1/models/{name}; the latter throws ApiError 404 for a
// name that find_model() does not know.
std::string models_body(const ModelInfo& model);
std::string model_body(const ModelInfo& model, std::string_view name);

}  // namespace quire::server
