#include "server/answer/response_format.h"

#include <utility>

#include "server/answer/chat_format.h"
#include "server/answer/completion_format.h"

namespace quire::server {

std::string content_type(const GenerationRequest& request) {
  return request.stream ? kEventStream : "application/json";
}

std::unique_ptr<ResponseFormatter> make_formatter(const GenerationRequest& request,
                                                  FormatContext context) {
  if (request.kind == RequestKind::kChat) {
    return std::make_unique<ChatFormatter>(request, std::move(context));
  }
  return std::make_unique<CompletionFormatter>(request, std::move(context));
}

}  // namespace quire::server
