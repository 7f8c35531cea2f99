#pragma once
// The schemas of the API's requests and responses, as components of the OpenAPI document.
//
// Thread safety: pure functions.
#include "server/api/json_body.h"
#include "server/api/model_info.h"

namespace quire::server {

// ChatCompletionRequest, CompletionRequest, TokenizeRequest, DetokenizeRequest and their parts,
// with the model's bounds filled in.
Json request_schemas(const ModelInfo& model);

// ChatCompletion, ChatCompletionChunk, Completion, Error, ModelList, ...
Json response_schemas();

// The "paths" of the document. `loads_adapters`: whether it has those that load and unload
// adapters.
Json api_paths(bool requires_key, bool loads_adapters);

// The largest number of alternatives that logprobs show, the most outputs of a prompt, and so on:
// bounds that do not depend on the model.
inline constexpr int64_t kMaxPrompts = 1024;  // in one request

// A regular expression for the integers from 0 to `last`, written without leading zeros.
std::string pattern_up_to(int64_t last);

}  // namespace quire::server
