#pragma once
// /tokenize and /detokenize: from the body of a request to the body of its answer.
//
// Thread safety: free functions of immutable arguments, and a budget that nobody else uses.
#include <memory>
#include <string>

#include "server/answer/body_source.h"
#include "server/request_budget.h"
#include "server/service_context.h"

namespace quire::server {

// Throw ApiError for faults of the body, and as RequestBudget does. The returned body must not
// outlive the context's tokenizer.
std::unique_ptr<BodySource> make_tokenize_body(std::string request_body,
                                               const ServiceContext& context,
                                               RequestBudget& budget);
std::string make_detokenize_body(std::string request_body, const ServiceContext& context,
                                 RequestBudget& budget);

}  // namespace quire::server
