#pragma once
// /tokenize and /detokenize, in vLLM's form.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "quire/chat_template.h"
#include "quire/tokenizer.h"
#include "server/api/json_body.h"
#include "server/api/model_info.h"
#include "server/api/owned_chat.h"

namespace quire::server {

class ApiDescription;

struct TokenizeRequest {
  std::variant<std::string, OwnedChat> input{};  // "prompt", or "messages" and what goes with them
  bool continue_final_message = false;           // of messages
  bool add_special_tokens = true;                // messages: false by default
  bool return_token_strs = false;
};

struct DetokenizeRequest {
  std::vector<int32_t> tokens{};
};

// Throw ApiError as parse_chat_request does.
TokenizeRequest parse_tokenize_request(Json body, const ModelInfo& model,
                                       const ApiDescription& api);
DetokenizeRequest parse_detokenize_request(Json body, const ModelInfo& model,
                                           const ApiDescription& api);

// The text to encode: the prompt, taken out of `request`, or the rendered messages. Throws ApiError
// 400 for messages that the template refuses; `chat_template` may be null where the model has none.
RenderedChat text_to_tokenize(TokenizeRequest& request, const ChatTemplate* chat_template);

// {"prompt":"..."}
std::string detokenize_body(const DetokenizeRequest& request, const Tokenizer& tokenizer);

}  // namespace quire::server
