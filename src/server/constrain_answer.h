#pragma once
// The constraint on the answer of a request, as the engine takes it: the one that the client gave,
// calls of the given tools, or both.
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

// Completes request.sampling.structured_output and has it compiled. The result keeps that in
// memory; it is null where the answer may be anything. `tools` is the format of the answer's calls;
// kNone: there are none. Adds warnings to the request for functions whose schemas cannot be
// enforced and need not be. Throws ApiError 400, naming the field, for what cannot be enforced.
// Takes as long as `source` does. Other exceptions of `source` than Error leave the request
// unchanged.
//
// The constraint begins behind the first `begins_after` in the answer, or at once where that is
// empty.
std::shared_ptr<const void> constrain_answer(GenerationRequest& request, ToolFormat tools,
                                             const std::string& begins_after,
                                             const AnswerSource& source);

// The error for a request that the engine refuses in submit(). As everything else was checked
// before, mostly the limits leave no room for the shortest answer.
ApiError refusal_of(const GenerationRequest& request, const Error& error);

// Memory of the constraint while the request runs.
int64_t constraint_bytes(const GenerationRequest& request);

}  // namespace quire::server
