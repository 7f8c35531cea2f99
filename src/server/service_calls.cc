// Calls of service.h that are answered by a worker.
#include <memory>
#include <string>
#include <utility>

#include "server/adapter_calls.h"
#include "server/service.h"
#include "server/tokenize_calls.h"

namespace quire::server {
namespace {

constexpr const char* kPlainText = "text/plain; charset=utf-8";

}  // namespace

void Service::tokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  answer_from_worker(exchange, std::move(record),
                     [context = &context_](std::string body, RequestBudget& budget) -> Body {
                       auto answer = make_tokenize_body(std::move(body), *context, budget);
                       std::string first = answer->next_piece();
                       return {.first_piece = std::move(first), .rest = std::move(answer)};
                     });
}

void Service::detokenize(const std::shared_ptr<http::Exchange>& exchange, RequestRecord record) {
  answer_from_worker(
      exchange, std::move(record),
      [context = &context_](std::string body, RequestBudget& budget) -> Body {
        return {.first_piece = make_detokenize_body(std::move(body), *context, budget)};
      });
}

void Service::load_lora_adapter(const std::shared_ptr<http::Exchange>& exchange,
                                RequestRecord record) {
  answer_from_worker(
      exchange, std::move(record),
      [context = &context_](std::string body, RequestBudget& budget) -> Body {
        return {.first_piece = load_adapter(std::move(body), *context, budget),
                .content_type = kPlainText};
      },
      &adapter_loaders_);
}

void Service::unload_lora_adapter(const std::shared_ptr<http::Exchange>& exchange,
                                  RequestRecord record) {
  answer_from_worker(exchange, std::move(record),
                     [context = &context_](std::string body, RequestBudget& budget) -> Body {
                       return {.first_piece = unload_adapter(std::move(body), *context, budget),
                               .content_type = kPlainText};
                     });
}

}  // namespace quire::server
