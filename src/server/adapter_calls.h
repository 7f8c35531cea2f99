#pragma once
// /v1/load_lora_adapter and /v1/unload_lora_adapter: from the body of a request to the text of its
// answer.
//
// Thread safety: free functions; from several threads at once.
#include <string>

#include "server/request_budget.h"
#include "server/service_context.h"

namespace quire::server {

// Throw ApiError for faults of the body or the adapter, and as RequestBudget does. Loading takes as
// long as reading the weights.
std::string load_adapter(std::string request_body, const ServiceContext& context,
                         RequestBudget& budget);
std::string unload_adapter(std::string request_body, const ServiceContext& context,
                           RequestBudget& budget);

}  // namespace quire::server
