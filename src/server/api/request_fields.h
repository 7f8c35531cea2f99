#pragma once
// What the requests of several endpoints have in common, taken out of bodies that the schema has
// checked.
//
// Thread safety: free functions.
#include <string>
#include <string_view>

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

// Throws ApiError 404 if `body` names a model that is not served; what is no string is left to the
// schema.
void check_model(const Json& body, const ModelInfo& model);

// Fills in what chats and completions share: sampling, streaming, priority, ... Only logprobs,
// max_tokens and the prompt are left. Throws ApiError 400 for fields that contradict each other.
void take_common_fields(const Json& body, const ModelInfo& model, GenerationRequest& request);

// Throws ApiError 400 for sampling parameters that do not go together.
void check_sampling(const SamplingParams& params);

// messages, tools and what else a chat is rendered from, moved out of `body`.
OwnedChat take_chat(Json& body);
// Whether the answer goes on from the last message.
bool continues_final_message(const Json& body);

// 400, code context_length_exceeded: a prompt of so many tokens leaves no room for an answer.
ApiError prompt_too_long(int64_t num_tokens, int64_t max_model_len, const std::string& param);

}  // namespace quire::server
