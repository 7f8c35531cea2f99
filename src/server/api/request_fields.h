#pragma once
// Fields that the requests of several endpoints share, taken from bodies that the schema has
// checked.
//
// Thread safety: free functions.
#include <string>
#include <string_view>

#include "base/raw_json.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"
#include "server/api/json_body.h"

namespace quire::server {

// The field of that name; null where it is not there or is null.
const Json* given(const Json& body, std::string_view name);

template <typename T>
void take_field(const Json& body, std::string_view name, T& target) {
  if (const Json* value = given(body, name)) target = value->get<T>();
}

// Throws ApiError 404 if `body` names a model that is not served. Values that are no strings are
// left to the schema.
void check_model(const Json& body, const ModelInfo& model);

// Fills in the fields that chats and completions share: sampling, streaming, priority, ... It
// leaves out logprobs, max_tokens and the prompt. `raw` is the text of `body`. Throws ApiError 400
// for fields that contradict each other.
void take_common_fields(const Json& body, const RawJson& raw, const ModelInfo& model,
                        GenerationRequest& request);

// Throws ApiError 400 for sampling parameters that do not go together.
void check_sampling(const SamplingParams& params);

// Moves messages, tools and the other parts of a chat's rendering out of `body`.
OwnedChat take_chat(Json& body);
// Whether the answer continues the last message.
bool continues_final_message(const Json& body);

// 400, code context_length_exceeded: a prompt of `num_tokens` tokens leaves no room for an answer.
ApiError prompt_too_long(int64_t num_tokens, int64_t max_model_len, const std::string& param);

}  // namespace quire::server
