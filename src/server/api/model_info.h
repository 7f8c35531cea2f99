#pragma once
// The model that a server serves, as far as requests and responses need to know it.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/sampling_params.h"

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
};

// Whether a client may name the model so.
bool serves(const ModelInfo& model, std::string_view name);

// The bodies of GET /v1/models and of GET /v1/models/{name}; the latter throws ApiError 404 for a
// name that serves() does not know.
std::string models_body(const ModelInfo& model);
std::string model_body(const ModelInfo& model, std::string_view name);

}  // namespace quire::server
