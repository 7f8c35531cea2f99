#include "server/tokenize_calls.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "server/answer/tokenize_format.h"
#include "server/api/tokenize_request.h"
#include "server/prepare_generation.h"

namespace quire::server {
namespace {

// Of an id, its comma, and the quotes around its text.
constexpr int64_t kTextBytesPerToken = 12;

}  // namespace

std::unique_ptr<BodySource> make_tokenize_body(std::string request_body,
                                               const ServiceContext& context,
                                               RequestBudget& budget) {
  budget.charge_body(request_body);
  TokenizeRequest request =
      parse_tokenize_request(parse_object_body(request_body), context.model, context.api);
  std::string().swap(request_body);
  const bool is_text = std::holds_alternative<std::string>(request.input);
  const RenderedChat text = text_to_tokenize(request, context.chat_template);
  // Tokenisers that work on bytes show each as up to two.
  const int64_t most_text =
      request.return_token_strs ? 2 * static_cast<int64_t>(text.text.size()) : 0;
  std::vector<int32_t> tokens =
      encode(context, text.text, text.from_messages, request.add_special_tokens,
             is_text ? "prompt" : "messages", budget);
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  budget.count_response(most_text + kTextBytesPerToken * num_tokens);
  budget.lower_to(static_cast<int64_t>(sizeof(int32_t)) * num_tokens);
  return std::make_unique<TokenizeBody>(std::move(tokens), request.return_token_strs,
                                        *context.tokenizer, context.model);
}

std::string make_detokenize_body(std::string request_body, const ServiceContext& context,
                                 RequestBudget& budget) {
  budget.charge_body(request_body);
  const DetokenizeRequest request =
      parse_detokenize_request(parse_object_body(request_body), context.model, context.api);
  std::string().swap(request_body);
  if (context.tokenizer == nullptr) throw invalid_request("This model has no tokenizer.");
  std::string body = detokenize_body(request, *context.tokenizer);
  budget.count_response(static_cast<int64_t>(body.size()));
  return body;
}

}  // namespace quire::server
