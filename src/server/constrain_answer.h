#pragma once
// What the answer of a request has to be, as the engine takes it: the constraint that the client
// gave, tool calls of the functions that there are, or both.
//
// Thread safety: free functions.
#include <cstdint>
#include <string>

#include "parsers/parser_formats.h"
#include "server/api/generation_request.h"
#include "server/engine_port.h"

namespace quire::server {

// Completes request.sampling.structured_output and has the engine compile it. `tools` is the format
// of the answer's calls; kNone: there are none. Warns in the request of functions whose schemas
// cannot be enforced and need not be. Throws ApiError 400, naming the field, for what cannot be
// enforced. May take seconds.
//
// The constraint begins behind the first `begins_after` in the answer, or at once where that is
// empty.
void constrain_answer(GenerationRequest& request, ToolFormat tools, const std::string& begins_after,
                      EnginePort& engine);

// What is kept of the constraint while the request runs.
int64_t constraint_bytes(const GenerationRequest& request);

}  // namespace quire::server
