#pragma once
// What the answer of a request has to be, as the engine takes it: the constraint that the client
// gave, tool calls of the functions that there are, or both.
//
// Thread safety: free functions.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "parsers/parser_formats.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"
#include "server/engine_port.h"

namespace quire::server {

// Compiles one constraint, as EnginePort::compile() does.
using AnswerSource = std::function<std::shared_ptr<const void>(const StructuredOutput&)>;

// Completes request.sampling.structured_output and has it compiled: what it returns holds
// that, and is null where the answer may be anything. `tools` is the format
// of the answer's calls; kNone: there are none. Warns in the request of functions whose schemas
// cannot be enforced and need not be. Throws ApiError 400, naming the field, for what cannot be
// enforced. Takes as long as `source` does. What that throws beside Error leaves the request as it
// was.
//
// The constraint begins behind the first `begins_after` in the answer, or at once where that is
// empty.
std::shared_ptr<const void> constrain_answer(GenerationRequest& request, ToolFormat tools,
                                             const std::string& begins_after,
                                             const AnswerSource& source);

// What a request is answered with that the engine refuses in submit(): mostly, as all else has been
// checked before, because it leaves no room for the shortest answer.
ApiError refusal_of(const GenerationRequest& request, const Error& error);

// What is kept of the constraint while the request runs.
int64_t constraint_bytes(const GenerationRequest& request);

}  // namespace quire::server
