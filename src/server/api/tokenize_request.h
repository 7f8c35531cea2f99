#pragma once
// /tokenize and /detokenize, as vLLM has them.
//
// Thread safety: plain values and free functions.
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "quire/chat_input.h"
#include "quire/chat_template.h"
#include "quire/tokenizer.h"
#include "server/api/json_body.h"
#include "server/api/model_info.h"

namespace quire::server {

class ApiDescription;

struct TokenizeRequest {
  std::variant<std::string, ChatInput> input{};  // "prompt", or "messages" and what goes with them
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

// The text to encode: the prompt, or the rendered messages. Throws ApiError 400 for messages that
// the template refuses; `chat_template` may be null where the model has none.
RenderedChat text_to_tokenize(const TokenizeRequest& request, const ChatTemplate* chat_template);

// {"tokens":[...],"count":...,"max_model_len":...,"token_strs":[...] or null}
std::string tokenize_body(const TokenizeRequest& request, std::span<const int32_t> tokens,
                          const Tokenizer& tokenizer, const ModelInfo& model);
// {"prompt":"..."}
std::string detokenize_body(const DetokenizeRequest& request, const Tokenizer& tokenizer);

}  // namespace quire::server
