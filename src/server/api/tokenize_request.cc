#include "server/api/tokenize_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "base/json_writer.h"
#include "server/api/openapi.h"
#include "server/api/render_prompt.h"
#include "server/api/request_fields.h"

namespace quire::server {

TokenizeRequest parse_tokenize_request(Json body, const ModelInfo& model,
                                       const ApiDescription& api) {
  const JsonClearer clearer(body);
  check_model(body, model);
  api.check("TokenizeRequest", body);
  TokenizeRequest request;
  if (body.contains("prompt")) {
    request.input = std::move(body.at("prompt").get_ref<std::string&>());
  } else {
    request.continue_final_message = continues_final_message(body);
    request.input = take_chat(body);
    request.add_special_tokens = false;
  }
  take_field(body, "add_special_tokens", request.add_special_tokens);
  take_field(body, "return_token_strs", request.return_token_strs);
  return request;
}

DetokenizeRequest parse_detokenize_request(Json body, const ModelInfo& model,
                                           const ApiDescription& api) {
  const JsonClearer clearer(body);
  check_model(body, model);
  api.check("DetokenizeRequest", body);
  return {.tokens = body.at("tokens").get<std::vector<int32_t>>()};
}

RenderedChat text_to_tokenize(TokenizeRequest& request, const ChatTemplate* chat_template) {
  if (auto* text = std::get_if<std::string>(&request.input)) return {.text = std::move(*text)};
  if (chat_template == nullptr) {
    throw invalid_request("The model has no chat template: give a prompt instead of messages.",
                          "messages", "no_chat_template");
  }
  return render_chat(*chat_template, std::get<OwnedChat>(request.input),
                     request.continue_final_message);
}

std::string detokenize_body(const DetokenizeRequest& request, const Tokenizer& tokenizer) {
  // Models pad their vocabulary: ids that the model has and the tokenizer lacks have no text.
  std::vector<int32_t> ids = request.tokens;
  std::erase_if(ids, [&](int32_t id) { return id >= tokenizer.vocab_size(); });
  std::string body;
  JsonWriter(body).begin_object().member("prompt", tokenizer.decode(ids)).end_object();
  return body;
}

}  // namespace quire::server
